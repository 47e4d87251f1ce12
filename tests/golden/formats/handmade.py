"""Parquet files that pyarrow reads and does not write: old list layouts, bare repeated fields, LZ4 in Hadoop's frames.

A writer for the few parts of Thrift's compact protocol that a footer needs, and pages put together by hand.
"""
import struct

import pyarrow as pa

REQUIRED, OPTIONAL, REPEATED = 0, 1, 2
INT32, BYTE_ARRAY = 1, 6
UTF8, MAP, LIST = 0, 1, 3


def varint(n):
    out = bytearray()
    while n >= 128:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out) + bytes([n])


def zigzag(n):
    return varint((n << 1) ^ (n >> 63))


class Long(int):
    """An integer that Thrift calls i64; plain ones are i32."""


def thrift(fields):
    """{id: value} as a struct: int, str, bytes, list of ints/strings/dicts, dict."""
    out, last = b"", 0
    for key, value in fields.items():
        if value is None:
            continue
        kind = {int: 5, Long: 6, str: 8, bytes: 8, list: 9, dict: 12}
        out += bytes([(key - last) << 4 | kind[type(value)]]) + body(value)
        last = key
    return out + b"\0"


def body(value):
    if isinstance(value, int):
        return zigzag(value)
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return varint(len(value)) + value
    if isinstance(value, dict):
        return thrift(value)
    kind = {int: 5, str: 8, dict: 12}[type(value[0])]
    head = bytes([len(value) << 4 | kind]) if len(value) < 15 else bytes([0xF0 | kind]) + varint(len(value))
    return head + b"".join(body(v) for v in value)


def element(name, repetition=None, type=None, children=None, converted=None):
    return {1: type, 3: repetition, 4: name, 5: children, 6: converted}


def levels(values, highest):
    """Runs of one value each, behind their length."""
    if highest == 0:
        return b""
    runs = b"".join(varint(1 << 1) + bytes([v]) for v in values)
    return struct.pack("<I", len(runs)) + runs


def plain(values):
    out = b""
    for v in values:
        out += struct.pack("<i", v) if isinstance(v, int) else struct.pack("<I", len(v.encode())) + v.encode()
    return out


def hadoop_lz4(data):
    """Two blocks, each behind its sizes in big-endian order."""
    half, out = len(data) // 2, b""
    for part in (data[:half], data[half:]):
        packed = pa.Codec("lz4_raw").compress(part, asbytes=True)
        out += struct.pack(">II", len(part), len(packed)) + packed
    return out


def write(path, schema, n_rows, columns, codec=0):
    """columns: (type, path in schema, repetition levels, definition levels, highest of each, values)."""
    out, chunks = b"PAR1", []
    for kind, where, reps, defs, (max_rep, max_def), values in columns:
        page = levels(reps, max_rep) + levels(defs, max_def) + plain(values)
        packed = hadoop_lz4(page) if codec == 5 else page
        header = thrift({1: 0, 2: len(page), 3: len(packed), 5: {1: len(defs), 2: 0, 3: 3, 4: 3}})
        chunks.append({2: Long(len(out)), 3: {1: kind, 2: [0, 3], 3: where, 4: codec, 5: Long(len(defs)),
                                              6: Long(len(header) + len(page)), 7: Long(len(header) + len(packed)), 9: Long(len(out))}})
        out += header + packed
    footer = thrift({1: 1, 2: schema, 3: Long(n_rows), 4: [{1: chunks, 2: Long(len(out)), 3: Long(n_rows)}]})
    with open(path, "wb") as f:
        f.write(out + footer + struct.pack("<I", len(footer)) + b"PAR1")


def two_level_list(path):
    """optional group names (LIST) { repeated binary array (UTF8); }"""
    schema = [element("schema", children=1), element("names", OPTIONAL, children=1, converted=LIST),
              element("array", REPEATED, BYTE_ARRAY, converted=UTF8)]
    write(path, schema, 4, [(BYTE_ARRAY, ["names", "array"], [0, 1, 0, 0, 0], [2, 2, 1, 0, 2], (1, 2), ["a", "b", "c"])])


def tuple_list(path):
    """optional group m (LIST) { repeated group m_tuple { required role; optional content; } }"""
    schema = [element("schema", children=1), element("m", OPTIONAL, children=1, converted=LIST),
              element("m_tuple", REPEATED, children=2), element("role", REQUIRED, BYTE_ARRAY, converted=UTF8),
              element("content", OPTIONAL, BYTE_ARRAY, converted=UTF8)]
    write(path, schema, 3, [(BYTE_ARRAY, ["m", "m_tuple", "role"], [0, 1, 0, 0], [2, 2, 1, 2], (1, 2), ["user", "assistant", "user"]),
                            (BYTE_ARRAY, ["m", "m_tuple", "content"], [0, 1, 0, 0], [3, 2, 1, 3], (1, 3), ["hi", "bye"])])


def bare_repeated(path, codec=0):
    """repeated int32 n; repeated group g { optional binary s (UTF8); }"""
    schema = [element("schema", children=2), element("n", REPEATED, INT32), element("g", REPEATED, children=1),
              element("s", OPTIONAL, BYTE_ARRAY, converted=UTF8)]
    write(path, schema, 3, [(INT32, ["n"], [0, 1, 1, 0, 0], [1, 1, 1, 0, 1], (1, 1), [1, 2, 3, 4]),
                            (BYTE_ARRAY, ["g", "s"], [0, 0, 1, 0], [0, 2, 1, 2], (1, 2), ["x", "y"])], codec)


def plain_binary(path, codec):
    """required binary text (UTF8), no nesting"""
    schema = [element("schema", children=1), element("text", REQUIRED, BYTE_ARRAY, converted=UTF8)]
    texts = ["some text " * 20, "", "Grüße"]
    write(path, schema, 3, [(BYTE_ARRAY, ["text"], [], [3, 3, 3], (0, 0), texts)], codec)
