"""The index of values: for each data file and path a filter that says whether a value may be in the file. No Spark, no JVM.

    values      values of a path ─▶ their 64-bit hashes
    ribbon      hashes ─▶ a filter, in the room that it may take
    data_files  a data file ─▶ a filter for each path
    sidecars    filters ─▶ Parquet files in the table's directory, which `scala/ValueIndex.scala` and `scanning.index` read

Theory. Minimum and maximum rule out no file if every file spans the whole range of a path, as with ids and hashes. A filter is
a set with false positives: it has every value of the file, and another value with probability p. A look-up then opens 1 + p *
(files - 1) files. At least log2(1/p) bits a value are needed for that. A Bloom filter needs 1.44 times as many, a binary fuse
filter 1.13 times for millions of values and 1.25 for ten thousand, in whole bits. A homogeneous ribbon filter needs 1.1 to 1.12
times, from thousands of values to millions. A filter is some columns of bits, each a little longer than the number of values.
Each value gives a linear equation over 64 successive bits of a column. Every column is a solution of these equations, in which
free variables are random. A value is in the filter if its equation holds in every column. Gaussian elimination of a band of 64
takes linear time and cannot fail, as an equation is 0 = 0 at worst. Each column halves p, and the last may be shorter, so a
filter fills the bytes that it is given.

A static function for the whole table, from a value to its file, needs log2(files / opened) bits a value, a tenth less than
filters of the same effect: 5.1 bits in place of 5.6 for 3 of 100 files. It cannot grow with the table, has no answer for a
value in many files, and opens a file for values that are in none. So each file has a filter of its own.

The bound holds for any index: with distinct values in random order, 3 of 100 files take 5.1 bits a value. A hundredth of the
data has room for these only if a row takes 63 bytes or more.

Invariants: no false negatives. A file whose filter is missing, damaged, of another version or of another table is kept.
"""
