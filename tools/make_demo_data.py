"""Rebuild the demo's two Parquet files from a folder with nycflights13's flights.parquet and weather.parquet.

    python tools/make_demo_data.py FOLDER

Nothing is sampled: every flight of 2013 is kept, with fewer columns and smaller types, in the order of its key.
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb

HERE = Path(__file__).resolve().parent.parent / "src" / "dpjoin" / "data"
# Hours since the year began: together with the airport this is what a flight and its weather share.
HOUR = "CAST((dayofyear(make_date(2013, CAST(month AS INT), CAST(day AS INT))) - 1) * 24 + hour AS SMALLINT) AS hour"
FLIGHTS = """
    SELECT origin, {hour}, carrier, CAST(dep_delay AS SMALLINT) AS dep_delay, CAST(distance AS SMALLINT) AS distance
    FROM read_parquet('{source}') ORDER BY origin, hour, carrier, distance, dep_delay"""
WEATHER = """
    SELECT origin, {hour}, CAST(round(temp) AS SMALLINT) AS temp, CAST(round(wind_speed) AS SMALLINT) AS wind_speed,
           CAST(precip AS FLOAT) AS precip, CAST(visib AS FLOAT) AS visib
    FROM read_parquet('{source}') ORDER BY origin, hour"""


def main(folder: Path) -> None:
    with duckdb.connect() as connection:
        for name, query in (("flights", FLIGHTS), ("weather", WEATHER)):
            target = HERE / f"{name}.parquet"
            rows = query.format(hour=HOUR, source=folder / f"{name}.parquet")
            connection.execute(
                f"COPY ({rows}) TO '{target}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 19, "
                "PARQUET_VERSION v2, ROW_GROUP_SIZE 400000)"
            )
            ((count,),) = connection.execute(f"SELECT count(*) FROM read_parquet('{target}')").fetchall()
            print(f"{target.name}: {count:,} rows, {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {Path(sys.argv[0]).name} FOLDER")
    main(Path(sys.argv[1]))
