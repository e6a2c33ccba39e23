"""Every heuristic number of ring 3 on which accuracy rests, with its kind.

*Derived*: it follows from a calculation that the text names. *Measured*: chosen on figures that a command makes.
*Guess*: chosen by judgement, or while looking at a few instances. None of them bears on privacy: a bad one costs
accuracy. `python benchmarks/constants.py` says what half and twice each value do. A new guess should retire another.
"""

from __future__ import annotations

from fractions import Fraction

# How a budget is split ------------------------------------------------------------------------------------------------

SENSITIVITY_SHARE = Fraction(35, 100)
"""Derived. Of rho, for the noisy sensitivity bound. The noise of everything else grows with (Δ + shift) / √(1 -
share), and the shift with 1 / √share. The best share is 1/2 when degrees are tiny and falls as they grow; 0.35 is
within 5 % of the best for every largest degree from 0 to 150 at (1, 1e-6), and 14 % worse at 1000."""
TRUNCATION_SHARE = Fraction(1, 4)
"""Derived. Of delta, for the truncation of that bound's noise. Flat between 0.1 and 0.5."""
COUNT_SHARE = Fraction(5, 100)
"""Guess. Of what is left of rho, for the join size.
(`benchmarks/constants.py --rows 3 --runs 7`: half 0.99, twice 1.12.)"""
GAUGE_SHARE = Fraction(25, 100)
"""Guess. Of rho, for a noisy bound inside each part of a partition, on top of the share for the partition's
degrees."""
SINGLES_SHARE = Fraction(10, 100)
"""Guess. Of the marginals' rho, for the one-way marginals of attributes in wider ones."""
LARGE_PILOT = Fraction(35, 100)
"""Measured, `benchmarks/large.py`, 3 to 8 runs. Of the marginals' rho in a factored model, for the first measurement
of all: mean errors are flat from 0.2 to 0.6, and the largest is a tenth smaller at 0.3 and 0.4 than at either end."""
PIECES = 60
"""Guess. Into how many pieces the marginals' rest of rho is cut, each for the one that gains most: more follow the gain
more closely, and 60 are past what matters."""
SELECT_SHARE = Fraction(1, 2)
"""Measured on product queries. Of a round's rho, for choosing the query; 0.3 to 0.7 are alike, 0.1 is clearly
worse."""
RANKS_SHARE, SIZES_SHARE = Fraction(4, 100), Fraction(5, 100)
"""Guess. Of rho, for the look: the ranks of all tables (a count of rows is then off by about 23 at (1, 1e-6)), and the
join sizes that the candidates leave."""
FEW_OWNERS = Fraction(15, 100)
"""Guess. Of rho, for a second histogram of owners, where none stood out of the first."""
BOUND_AFTER_LOOK = Fraction(30, 100)
"""Derived, as SENSITIVITY_SHARE. Of rho, for a noisy bound after a look."""
DEGREES_SHARE, LIST_SHARE = Fraction(10, 100), Fraction(30, 100)
"""Measured, `benchmarks/methods.py`: flat from 0.04 to 0.15. Of rho, for the degrees of all declared values (off by
about thirteen at (1, 1e-6)). Guess: for a list of values, whose noise is several times larger."""
DEGREES_EPSILON = Fraction(12, 100)
"""Guess. Of epsilon, for the degrees of all declared values, if what is left is Laplace noise."""
AUTO_DELTA = Fraction(1, 64)
"""Derived. Of delta, set aside by `auto` for listed degrees or a noisy bound, should they run. Others leave it
unspent: so little hardly costs them anything, and the shift of degrees grows by a tenth only."""

DOMAIN_SHARE, DOMAIN_LEAST, DOMAIN_MOST = Fraction(2, 100), Fraction(5, 100), Fraction(10, 100)
"""Measured, `benchmarks/learned.py`. Of rho, for domains: each column of a table, between these ends for all."""
DOMAIN_DELTA = Fraction(1, 16)
"""Derived. Of delta, for their lists: rho loses half a per cent, and lists ask for a fifth more rows than with all."""
BINS_TO_LISTS = 2
"""Guess. How many times as much of rho a column's bins get as a list: every edge has noise, not only rare values."""
VALUES_OF_OWNER = 4
"""Guess. At how many values of a list one person counts: the noise grows with its root."""

# Edges of bins at noisy quantiles -------------------------------------------------------------------------------------

QUANTILE_SHARES = (0.25, 0.25, 0.25, 0.25)
"""Measured on five made-up columns of 26,000 rows, as the three that refer to it: edges are off by 0.95 % in rank on
average, and by 1 to 1.3 % with other values, or 3 and 5 rounds. Of a column's budget, what each round gets."""
PHANTOM = 0.15
"""Measured, as QUANTILE_SHARES: more loses tails, less keeps empty ones. What a fit leaves of noise in an empty piece,
in deviations of a single count."""
QUANTILE_DOUBT = 1.0
"""Measured, as QUANTILE_SHARES. By how many deviations what was counted may mislead about where a quantile lies."""
BIN_PIECES = 5
"""Measured, as QUANTILE_SHARES. Into how many pieces the share of a bin is cut where a quantile lies."""
OUTER_TAIL = 0.001
"""Guess. Of all rows, those beyond the outermost edges at either end."""
TAIL_NOISE, EDGE_DOUBT = 3.5, 0.1
"""Guess. By how many deviations of its noise a tail may go unseen; and of a bin's share, how far off an edge always may
be for the next round."""
MOST_TAIL = 0.05
"""Measured on eight made-up columns of 500 and 1,000 rows: at 0.1 and 0.15 edges are further off in rank, and without
it half of these columns end as one bin with hardly a row. What is cut off at either end, at most."""
EDGE_MOVES = 0.05
"""Guess. Of a bin's share of the rows, how far an edge may be off so as to be a rounder number."""
PIECE_SEEN, PIECE_ROOM = 4.5, 1
"""Guess. By how many deviations of its noise the count of a first piece must stand out, and how many pieces may follow
that do not."""
ONE_NUMBER = 0.25
"""Guess. Of a bin's share, what one piece holds that may be a single number: an edge is not put inside it."""
RANK_NOISE = 3.0
"""Measured, `benchmarks/learned.py`. By how many deviations of a single count edges at quantiles are off in rank, as a
plan says."""

# Laplace noise instead of Gaussian ------------------------------------------------------------------------------------

EARLY_LAPLACE, LAPLACE_SHARE = Fraction(9, 10), Fraction(75, 100)
"""Guess. Of epsilon, what there is of Laplace noise in exchange for rho: after a first look, and after a closer one.
The rest buys about a sixteenth of rho, for looks and for the size of the join."""
FIRST_RANKS, FIRST_SIZE = Fraction(45, 100), Fraction(25, 100)
"""Guess. Of what may be spent before the first exchange, what ranks and one size cost."""
RANKS_OF_LOOK, SIZES_OF_LOOK = Fraction(30, 100), Fraction(40, 100)
"""Guess. The same before the second. The rest is for the join size afterwards."""
LEAST_LEFT = Fraction(1, 500)
"""Guess. Of the rho that an exchange would give up, what it must leave: the size of the join is still to be
measured."""
ONE_STAGE = 2
"""Guess. Gaussian noise on a join is spent in stages, and what the first ones tell makes it worth twice its rho."""
STAGES_MATTER = 64
"""Guess. The same for a table with several attributes, where stages find out what noise hides: never worth it."""
CAPPED_L1 = 2
"""Derived. Where a row pushes others out or lets them fade, answers move √2 times as far in l1 as in l2: squared."""
NARROW_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8)
"""Derived: a grid. Which part of epsilon may go to marginals that wider ones contain."""
ONE_WAY, INTERACTION = 1.0, 0.6
"""Guess. By how much of their mean cells differ from what a fit expects where it knows nothing of them."""

# What noise leaves ----------------------------------------------------------------------------------------------------

SHRINKAGE = 0.5
"""Guess. What a fit with learnt priors leaves of the noise of measured marginals."""
CLEAR_CELLS = 0.05
"""Measured on lastfm_wedge, nyc_weather and oulad_two (`benchmarks/methods.py`). Beyond this ratio of a cell's noise
to what cells hold on average, a fit leaves less of it: as the root of the ratio."""
GUESSED = 0.7
"""Guess. How far off (total variation) a marginal is of which noise leaves nothing: seen on keys of real joins."""
ROUND_FACTOR = 0.15
"""Measured on product queries over 65,536 cells. Rounds with refitting leave this much of the worst-case bound n √(ln
D / 2k): 0.033 against 0.235 at k = 100."""

# How a model is fitted ------------------------------------------------------------------------------------------------

PRIOR_START, SINGLE_START = 0.4, 1.5
"""Guess. The prior width of interactions and of one-way terms before anything is learnt: log-odds of interactions in
tabular data are mostly below one."""
PRIOR_PSEUDO, SINGLE_PSEUDO = (0.5, 0.1), (1.0, 1.5)
"""Guess. The made-up observation (its weight in potentials, a width) that keeps the width of an empty group finite."""
PRIOR_RANGE = (0.02, 4.0)
"""Guess. Between which ends widths are learnt."""
FREE_PRIOR = 5.0
"""Guess. The prior width of a free clique: cells may differ by any factor."""
TAILS, SURE = 2.0, 4.0
"""Guess. A potential that moves its cell by so many deviations of the noise (the second) surely is that far from zero,
and its prior is the first times as wide. Cells that are all but empty are common, and a prior that suits the other
cells would fill them."""
STUCK, FAR = 10.0, 4.0
"""Guess. By how many times the noise's variance a fit that has gone astray misses what was measured, on average; and a
loose one a marginal, so that a closer search follows."""
FEW_VALUES = 16
"""Guess. Small cells of an attribute with more values than this are scaled several values together, and value by value
only if its one-way marginal was measured."""
MOST_SCALED = 2.0
"""Guess. By how much small cells are scaled at most to make up for the total."""
CLEAR_BY_NOISE = 0.1
"""Guess. Which part of the cells that stand out may be noise."""
CLEAR_ROWS = 1 / 3
"""Guess. Which part of the rows clear cells must have. Where nearly all cells are small, a fit knows more of these than
their sums do."""

# Error bars of a model ------------------------------------------------------------------------------------------------

OF_ONE_VALUE, WIDEST_PRIOR = 16, 5.0
"""Guess. From so many potentials on that look at one value of an attribute, their own width shows in what the fit
misses; and how many times as wide as their group they may turn out to be."""
ASTRAY = 10.0
"""Guess. A member whose search did not come back from where a wide prior drew it moves something measured by so many
deviations of its noise. It is searched for again, with a prior that draws it less far."""
STRETCH, PRODUCT_STRETCH = 1.2, 1.65
"""Guess; `benchmarks/accuracy.py` shows what bars cover with it. They are this much longer than the members' spread:
twelve members know it roughly, the prior widths are estimated themselves, and real interactions have longer tails than
a Gaussian. The second is for product queries, which sum over many cells: without it 90 % bars held three quarters."""
IN_COMMON = 0.05
"""Measured on made-up joins, `benchmarks/sums.py --generated`: with none 90 % bars of sums hold 78 to 85 % of the
truths, by the number of bins, with this 90 to 95 %. Which share of a cell's squared error all cells of a sum have in
common."""

# What ranks and sizes under caps tell ---------------------------------------------------------------------------------

STANDS_OUT = 10.0
"""Derived, by simulation. By how many variances of noise a longer histogram of ranks must fit better to count, and by
one more for each bucket. Of pure noise hardly any does; one value of 650 rows above others of 200 does half the
time."""
TAIL = 3.0
"""Guess. By how many deviations the rows of several buckets together must stand out to count."""
CAP_LEVELS = (0.0, 0.003, 0.01, 0.03, 0.1, 0.2, 0.35, 0.5)
"""Guess. Candidates: caps beyond which this share of a table's rows lies, or too few rows to be seen."""
CAP_ROOM, WIDE_ROOM = 2, 6
"""Guess. By how many edges (a fifth more each) two further candidates exceed the largest rank that is seen: one to
lose nothing, one to tell whether a few values have far more rows."""
HIDDEN_BUCKET = 6.0
"""Guess. A bucket of ranks hides a value's rows where these are fewer than so many deviations of its noise."""
LEAST_KEPT = 1e-3
"""Guess. Of a join, what is left under any caps."""
ROWS_DOUBT = 3.0
"""Guess. By how many deviations of one rank's noise a table may have more rows than ranks say."""
ALIGNMENTS = tuple(n / 10 for n in range(11))
"""Derived: a grid. How correlated the tables' degrees may be."""
MISJUDGED, SAME_DIRECTION = 0.5, 0.5
"""Guess. How far off the share left under caps may be, as a share of what is lost and left; and how much of that, as a
variance, has the same direction under all caps."""
SIZE_EXPECTED, BEYOND = 0.5, 2.0
"""Guess. How far off the size is that degrees promise for a correlation, in logarithms; and how many times what
degrees allow at most a join may be."""
UNLIKELY, SURPRISE, CONTRADICTS = 3.5, 3.0, 2.5
"""Guess. By how many deviations: generous caps must say that there is more for stricter ones not to count; sizes must
contradict what ranks promise for the promise not to count; what a cap leaves is less than it should be of the
whole."""
VISIBLE = 2.0
"""Guess. By how many deviations a join must stand out under caps for these to tell its size."""
SHOWN, ONE_SIZE = 0.85, 0.2
"""Guess. Of a join, what the caps of a first look must leave to tell how correlated degrees are; and how far off the
size is then, beyond noise."""
SIZE_DOUBT = 2.0
"""Guess. By how many deviations a noisy size may be off, where it tells how correlated degrees are."""

# What a histogram of owners tells -------------------------------------------------------------------------------------

WIDE_BUCKET = 3.0
"""Guess. By how many deviations of its noise a wide bucket must hold owners to count."""
MANY_OWNERS = 16.0
"""Guess. From how many owners with more join results on, in deviations of noise, these numbers fall as one shape."""
MANY_OF_ALL = 0.25
"""Guess. Or from this share of all owners, if these are fewer."""
POWERS, BENDS = (0.3, 40.0), (0.0, 0.1, 0.4, 1.6)
"""Guess. Between which ends that power is sought, and how fast it may grow."""
STRAIGHT = 0.55
"""Guess. How likely these numbers are to fall as a power of the results, before anything is seen."""
LARGEST_LIMIT = 1.5
"""Guess. How many times the results of the last owners that stand out the largest limit may be."""

# capped ---------------------------------------------------------------------------------------------------------------

LOST, LOST_ASKED = 0.25, 1.0
"""Guess. What a lost join result counts, against one that is noise: its absence shifts the shape by a part of it; all
of it where the workload asks about what rows are capped by, so that the very values are asked about that lose most.
(LOST alone, `benchmarks/constants.py --rows 3 --runs 7`: half 1.02, twice 1.09.)"""
LOST_CLIPPED = 0.15
"""Measured, `benchmarks/clipping.py`: 0.1 and 0.07 are as good on average and worse where owners with many results
differ from others. The same of an owner whose join results are clipped: its other results stay, so that less of the
shape is lost."""
LOST_DIFFERS = 0.5
"""Guess. By which factor, as a logarithm, a value may be more or less frequent in what is lost (for error bars)."""

FADE_PRICES = (1.05, 1.12, 1.2, 1.3, 2**0.5)
"""Derived: a grid up to the price of removing rows. What a row may move, as a multiple of its full weight. More lets
weights fall at once, and a value count less."""
FADE_TRIAL, NEARLY_LEAST = 32, 1.05
"""Guess. Which price suits a join is tried with full weight up to so many rows: the lowest whose bound is not larger
than this times the least, since a low price loses less of large values."""

# as one ---------------------------------------------------------------------------------------------------------------

DECLARED_GAIN = 1.2
"""Guess. By so much declared bounds with Laplace noise may promise more than others: they cut nothing."""

# heavy_light ----------------------------------------------------------------------------------------------------------

HEAVY_GAIN = 1.2
"""Guess. By so much it may promise more than others on declared keys: hot values that caps cut, or noise hides, are the
largest errors.
(`benchmarks/constants.py --rows 3 --runs 7`: half 1.10, twice 1.04.)"""
BLUR = 0.05
"""Guess. How far (total variation) the shape at one value is from that of all others, where noise hides it."""
LIKELY_CORRELATED = 0.5
"""Guess. From this correlation on, frequent values are taken to be the same in all tables."""

# per_table ------------------------------------------------------------------------------------------------------------

NOISE_ERROR, BY_VALUE_ERROR = 1.6, 1.5
"""Measured: fitted to 48 random pairs of `benchmarks/unseen.py` (seeds 200 to 247) and the made-up rows of
`benchmarks/methods.py`, where the forecast is off by a factor of 1.5 on average. What two parts of its error count."""
UNTOLD = 0.06
"""Guess. The third part, at values that noise hides: how the attributes of one table go with those of others is
lost."""
VALUES_VARY = 0.1
"""Guess. How far a value's share in a cell is likely to be from that of others, squared, in its units: a model of all
values learns from all of them what they have in common."""
ALL_NOISE = 0.25
"""Guess. What the noise of all values together comes to, as a share, where there is nothing else."""
CYCLIC_FACTOR = 3.0
"""Measured on 45 random joins of three and four tables (`benchmarks/unseen.py`, seeds 1000 to 1059). By how much more
a join of models is off where tables meet in a circle: what several keys have in common counts."""
DEGREES_KNOWN = 0.4
"""Guess. Of a table's budget, what tells how many rows each value has."""
FLATTENED, UNDER_CAPS = 0.35, 0.3
"""Guess. Where ranks do not tell what a join of models lacks: which share of what it has beyond rows that meet by
chance; and how far off the size under caps may be there, beyond its noise."""
CLEAR_ERROR, MISCOUNTED, CLEAR_GAIN = 0.035, 0.05, 2.0
"""Guess. How far off models of clear tables may be, and the size that they counted, as shares of it. By so much they
may then promise more than others: where all values are clear, the forecast is too high.
(CLEAR_GAIN alone, `benchmarks/constants.py --rows 3 --runs 7`: half 1.18, twice 1.15.)"""
NOISE_OVER_TABLE, NOISE_OVER_ROWS = 8.0, 4.0
"""Guess. By how many times the noise of all cells together may exceed a table's rows: of a table that is clear, and of
a marginal of several attributes by value of the key that is worth measuring."""
SEVERAL, MANY_CELLS = 5.0, 2**14
"""Guess. Rows in each cell that stand out of Laplace noise at epsilon one; a marginal with fewer cells is fitted
quickly, and the fit finds out by itself what noise hides."""
HIDDEN_SHAPE = 0.15
"""Guess. By which factor, as a logarithm, a value may be more or less frequent in the join than models tell, where
noise hides what they say of single values (for error bars)."""
ONE_TABLE_GAIN = 0.4
"""Guess, made while looking at sixty random pairs. By how much less one private table by itself must promise than the
join with public ones: where noise hides cells, its fit is off by more than noise."""

# paper ----------------------------------------------------------------------------------------------------------------

SHAPE_DISTANCE = 0.25
"""Guess. How far (total variation) the shape of a part is from that of the others, where it is not measured."""
UNLISTED = 0.05
"""Guess. A value that a table does not list has 0 to 2s rows there; this share of s is taken."""
