"""Writes tables, reads them back, and fails if they are not what was written.

tables.py READ WRITE...: READ is a Parquet table with a column "number"; WRITE are folders for new tables.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, udf
from pyspark.sql.types import IntegerType


def check(rows, out):
    wanted = sorted(row.number for row in rows.collect())
    rows.write.orc(out + "/orc")
    rows.write.mode("overwrite").parquet(out + "/parquet")
    rows.rdd.map(lambda row: str(row.number)).saveAsTextFile(out + "/text")
    found = {
        "orc": [row.number for row in spark.read.orc(out + "/orc").collect()],
        "parquet": [row.number for row in spark.read.parquet(out + "/parquet").collect()],
        "text": spark.sparkContext.textFile(out + "/text").map(int).collect(),
    }
    for name, numbers in found.items():
        if sorted(numbers) != wanted:
            raise SystemExit(f"{out}/{name} has {sorted(numbers)}, and should have {wanted}")


spark = SparkSession.builder.getOrCreate()
# Rows go through Python's own processes, not only through the JVM.
twice = udf(lambda n: 2 * n, IntegerType())
table = spark.read.parquet(sys.argv[1])
made = table.select(twice(col("number")).alias("number")).coalesce(2).cache()
for folder in sys.argv[2:]:
    check(made, folder)
spark.stop()
