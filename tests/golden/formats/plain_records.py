"""The records of an Arrow table as JSON can hold them: the choices that src/data/scalar.h makes."""
import datetime, decimal

import numpy as np
import pyarrow as pa


def plain(value, kind):
    """A Python value of an Arrow type as JSON can hold it."""
    if value is None:
        return None
    if pa.types.is_dictionary(kind):
        return plain(value, kind.value_type)
    if pa.types.is_map(kind):
        pairs = [(plain(k, kind.key_type), plain(v, kind.item_type)) for k, v in value]
        if all(isinstance(k, str) for k, _ in pairs):
            return dict(pairs)
        return [{"key": k, "value": v} for k, v in pairs]
    if pa.types.is_struct(kind):
        return {f.name: plain(value[f.name], f.type) for f in kind}
    if isinstance(value, list):
        return [plain(v, kind.value_type) for v in value]
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.floating):
        return float(value)
    return value


def records(table):
    return [{f.name: plain(row[f.name], f.type) for f in table.schema} for row in table.to_pylist()]
