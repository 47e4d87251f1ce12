# Every source of the library, per folder, in the order of the layers (docs/tour.md).
set(MT_SOURCES
  src/base/dtype.c
  src/base/err.c
  src/base/fault.c
  src/base/file.c
  src/base/json.c
  src/base/log.c
  src/base/mem.c
  src/base/pool.c
  src/base/rng.c
  src/base/str.c
  src/base/units.c
  src/base/utf8.c
)
