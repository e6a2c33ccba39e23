"""What a release is made of. All of it is post-processing of noisy numbers.

| concept | files |
| --- | --- |
| the model: answers, error bars, averages | `model`, `averages` |
| log-linear terms on cells that are written down | `terms` |
| junction tree, for cells that are not | `junction`, `triangulate`, `factor`, `sampling` |
| log-linear fit, by an oracle of either | `fit`, `coordinates`, `lbfgs`, `clear_cells`; `ensemble` for bars |
| combinations: the join of one model per table, the union of parts | `joined`, `union` |
| multiplicative weights, for the paper's algorithms | `multiplicative_weights` |

Opening a release and asking it needs no fit.
"""
