set(sources buffer_index.c buffers.c check.c cut.c deal.c plan.c sequence.c sequence_keeps.c sequence_pieces.c sequence_ring.c sequence_sums.c sequence_updates.c settle.c sizes.c slices.c)
