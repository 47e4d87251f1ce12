set(sources added.c bpe.c bpe_load.c bytes.c charsmap.c config.c decode.c decode_json.c json_read.c model.c normal_forms.c
  normalize.c normalize_json.c open.c postprocess.c prefix_space.c pretokenize.c pretokenize_json.c protobuf.c regex.c regex_parse.c
  regex_program.c regex_sets.c scan.c spm.c
  spm_normalize.c text.c tiktoken.c tokenizer.c tokenizer_json.c trie.c unicode.c unicode_data.c unigram.c vocab.c wordpiece.c)
