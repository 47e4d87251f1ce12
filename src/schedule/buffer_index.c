/* buffer_index.c - finds a buffer of a plan by its kind and index.
 *
 * The table has a row for each (kind, i), and a row has a cell for each j up to its largest.  So the tables stay as small as the
 * list of buffers, however many units there are. */
#include "schedule/buffer_index.h"

#include "base/mem.h"

/* Rows of each kind: i from -1 up to the largest. */
static int count_rows(mt_buffer_index *x, const mt_buffer *list, size_t n)
{
    int rows[MT_BUFFER_KINDS] = { 0 }, sum = 0;
    for (size_t k = 0; k < n; k++)
        if (list[k].i + 2 > rows[list[k].kind]) rows[list[k].kind] = list[k].i + 2;
    for (int kind = 0; kind < MT_BUFFER_KINDS; kind++) {
        x->first_row[kind] = sum;
        sum += rows[kind];
    }
    return x->first_row[MT_BUFFER_KINDS] = sum;
}

static int row_of(const mt_buffer_index *x, const mt_buffer *b) { return x->first_row[b->kind] + b->i + 1; }

/* Cells of each row, as the position of its first. */
static int place_cells(mt_buffer_index *x, const mt_buffer *list, size_t n, int n_rows)
{
    int sum = 0;
    for (size_t k = 0; k < n; k++) {
        int *cells = &x->first_cell[row_of(x, &list[k])];
        if (list[k].j + 2 > *cells) *cells = list[k].j + 2;
    }
    for (int r = 0; r <= n_rows; r++) {
        int cells = x->first_cell[r];
        x->first_cell[r] = sum;
        sum += cells;
    }
    return sum;
}

mt_rc mt_buffer_index_create(mt_buffer_index *x, const mt_buffer *list, size_t n, mt_err *err)
{
    *x = (mt_buffer_index){ 0 };
    int rows = count_rows(x, list, n);
    x->first_cell = mt_calloc((size_t)rows + 1, sizeof *x->first_cell);
    if (!x->first_cell) return mt_no_memory(err, "a table of %zu buffers", n);
    int cells = place_cells(x, list, n, rows);
    x->cells = mt_malloc(((size_t)cells + 1) * sizeof *x->cells);
    if (!x->cells) return mt_no_memory(err, "a table of %zu buffers", n);
    for (int c = 0; c < cells; c++) x->cells[c] = -1;
    for (size_t k = 0; k < n; k++) x->cells[x->first_cell[row_of(x, &list[k])] + list[k].j + 1] = (int)k;
    return MT_OK;
}

void mt_buffer_index_free(mt_buffer_index *x)
{
    mt_free(x->first_cell);
    mt_free(x->cells);
    *x = (mt_buffer_index){ 0 };
}

int mt_buffer_index_find(const mt_buffer_index *x, mt_buffer_kind kind, int i, int j)
{
    int row = x->first_row[kind] + i + 1;
    if (i < -1 || j < -1 || row >= x->first_row[kind + 1]) return -1;
    int cell = x->first_cell[row] + j + 1;
    return cell < x->first_cell[row + 1] ? x->cells[cell] : -1;
}
