#!/usr/bin/env python3
"""Writes the seeds of corpus/request, run_view, state and hub: what a browser asks, what a run leaves, what a hub answers.  Inputs that found something (find_*) are written here too."""
import hashlib, json, os, struct

HERE = os.path.dirname(os.path.abspath(__file__))
CUT = "\n=====\n"


def put(target, name, text):
    os.makedirs(os.path.join(HERE, "corpus", target), exist_ok=True)
    with open(os.path.join(HERE, "corpus", target, name), "wb") as f:
        f.write(text if isinstance(text, bytes) else text.encode())


def unit():
    """The state of layer 0 of the model in fuzz_state.c."""
    shapes = {f"self_attn.{x}_proj": [8, 8] for x in "qkvo"} | {f"mlp.{x}_proj": [8, 8] for x in ("gate", "up", "down")}
    shapes |= {"input_layernorm": [8], "post_attention_layernorm": [8]}
    header, data = {}, b""
    for tail, dtype, size in ((".m", "F32", 4), (".v", "F32", 4), (".hi", "BF16", 2), (".lo", "I16", 2)):
        for name, shape in shapes.items():
            n = size * (64 if len(shape) == 2 else 8)
            header[f"model.layers.0.{name}.weight{tail}"] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + n]}
            data += bytes(n)
    text = json.dumps(header).encode()
    return b"unit\n" + struct.pack("<Q", len(text)) + text + data


K="00112233445566778899aabbccddeeff"
for name,t in {
 'page':f"GET /{K}/ HTTP/1.1\r\nHost: 127.0.0.1:8088\r\n\r\n",
 'data':f"GET /{K}/data?from=12 HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n",
 'data_past':f"GET /{K}/data?from=999999999999999999999 HTTP/1.0\n\n",
 'wrong_key':f"GET /{K[:-1]}0/data HTTP/1.1\r\nHost: [::1]:1\r\n\r\n",
 'other_host':f"GET /{K}/ HTTP/1.1\r\nHost: example.org\r\n\r\n",
 'post':"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nx",
 'not_there':f"GET /{K}/etc/passwd HTTP/1.1\r\n\r\n",
 'no_end':"GET / HTTP/1.1\r\n",
 'nul':b"GET /\0 HTTP/1.1\r\n\r\n",
 'no_path':"GET \r\n\r\n",
 'long_path':"GET /"+"a"*400+" HTTP/1.1\r\n\r\n",
 'too_long':"GET / HTTP/1.1\r\n"+"X: "+"y"*9000+"\r\n\r\n"}.items(): put('request',name,t)
m='{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.25, "eval_loss": 2.5}\n'
for name,t in {
 'plain':CUT.join(["0",m,'{"metrics_file": "metrics.jsonl"}','model:\n  name: x\n','a line\nanother\n']),
 'from':CUT.join(["25",m,'{}']),
 'past_the_end':CUT.join(["9999",m]),
 'negative':CUT.join(["-1",m]),
 'elsewhere':CUT.join(["0",m,'{"metrics_file": "../secret.jsonl"}']),
 'absolute':CUT.join(["0",m,'{"metrics_file": "/etc/passwd"}']),
 'link':CUT.join(["0",m,'{"metrics_file": "link.jsonl"}']),
 'through_link':CUT.join(["0",m,'{"metrics_file": "up/secret.jsonl"}']),
 'more':CUT.join(["3",m,'{"metrics_file": "more/metrics.jsonl"}']),
 'markup':CUT.join(["0",'{"sample": "</script><!--<script>"}\n','</script>','<!--','<b>\n']),
 'not_utf8':CUT.join(["0","x"]).encode()+b'\xff\xfe\0\x80\n'+CUT.encode()+b'\xc3',
 'no_newline':CUT.join(["0",'{"step": 1']),
 'many':CUT.join(["0",'{"step": 1}\n'*4500]),
 'empty':""}.items(): put('run_view',name,t)
state={"format":1,"version":"1.0","step":12,"updates":12,"epoch":1.5,"learning_rate":1e-3,"seed":1,"tokens":100,"trained_tokens":50,"skipped_steps":0,"bad_in_row":0,"window_loss":1.25,"window_steps":1,"metrics_bytes":77,"unfinished":True,"date":"2026-10-21T07:28:00","data":"0123456789abcdef","model":"ff","arithmetic":{"compute":"bfloat16","grad":"float32","adam_state":"fp32","micro_tokens":64,"mlp_rows":64,"head_rows":64,"attention":[1,256,4096,1,0],"hash":"0"}}
def st(**k):
    d=json.loads(json.dumps(state)); a=k.pop('attention',None); d.update(k)
    if a is not None: d['arithmetic']['attention']=a
    return "state\n"+json.dumps(d)
for name,t in {
 'state':st(),'state_large':st(step=2**56,tokens=2**56),'state_too_large':st(step=2**56+1),'state_negative':st(updates=-1),
 'state_text':st(window_loss="NaN"),'state_date':st(date="2026-02-31T23:59:60"),'state_format':st(format=2),
 'find_state_workspace_unreadable':st(attention=[1,256,-1,1,1]),'state_no_attention':st(attention=[]),
 'checksums':'checksums\n'+json.dumps({"files":{"a":{"bytes":3,"checksum":"0"},"b/c":{"bytes":0,"checksum":"0"}}}),
 'checksums_out':'checksums\n'+json.dumps({"files":{"../secret":{"bytes":3,"checksum":"0"}}}),
 'checksums_link':'checksums\n'+json.dumps({"files":{"link":{"bytes":3,"checksum":"0"}}}),
 'checksums_folder':'checksums\n'+json.dumps({"files":{"b":{"bytes":3,"checksum":"0"},"none":{}, "x":1}}),
 'files':'files\n"a"\n"checkpoint-3"\n"checkpoint-3/config.json"\n','find_files_cut_line':'files\n"b"\nxyz\n"a','files_odd':'files\n"\\u0000"\n1\n[]\n"a"\n"a"\n',
 'plan':'plan\n{"metrics_file": "metrics.jsonl", "began_from": "../a/checkpoint-3"}','plan_odd':'plan\n{"metrics_file": 1}',
 }.items(): put('state',name,t)
put('state','unit',unit())
put('state','unit_cut',unit()[:-9])
C="0123456789abcdef0123456789abcdef01234567"
def ans(body,headers="",status="200 OK"):
    return f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\n\r\n{body}"
def git(b): return hashlib.sha1(b"blob %d\0"%len(b)+b).hexdigest()
content='{"model_type": "llama"}'
def f(path,lfs=False,size=None,hash=None):
    b=content.encode(); n=len(b) if size is None else size
    if lfs: return {"type":"file","path":path,"oid":"x","size":1,"lfs":{"oid":hash or hashlib.sha256(b).hexdigest(),"size":n}}
    return {"type":"file","path":path,"oid":hash or git(b),"size":n}
need=[f("config.json"),f("model.safetensors",True),f("tokenizer.json")]
rev=ans(json.dumps({"sha":C})); file=ans(content)
def hub(*pages,rev=rev,file=file): return CUT.join([rev,file,*pages])
nxt="Link: </api/models/acme/tiny/tree/next>; rel=\"next\"\r\n"
for name,t in {
 'model':hub(ans(json.dumps(need))),
 'pages':hub(ans(json.dumps(need[:1]),nxt),ans(json.dumps(need[1:]))),
 'next_elsewhere':hub(ans(json.dumps(need),'Link: <http://other.test/x>; rel="next"\r\n'),ans("[]")),
 'next_no_address':hub(ans(json.dumps(need),'Link: <file:///x>; rel="next"\r\n')),
 'redirect':hub(ans(json.dumps(need)),file,file,file,file=ans("","Location: http://cdn.test/blob?sig=1\r\n","302 Found")),
 'redirect_loop':hub(ans(json.dumps(need)),file=ans("","Location: /acme/tiny/resolve/x\r\n","307 x")),
 'redirect_file':hub(ans(json.dumps(need)),file=ans("","Location: file:///etc/passwd\r\n","302 x")),
 'redirect_https':hub(ans(json.dumps(need)),file=ans("","Location: https://cdn.test/\r\n","302 x")),
 'gated':hub("",rev=ans("","X-Error-Code: GatedRepo\r\n","403 x")),
 'no_such':hub(ans('[{"id": "acme/tinny"}]'),rev=ans("",status="404 x")),
 'patience':hub(ans(""),rev=ans("","Retry-After: 3\r\nRateLimit: \"api\";r=0;t=5\r\n","429 x")),
 'patience_date':hub(ans(""),rev=ans("","Retry-After: Wed, 21 Oct 2026 07:28:00 GMT\r\n","503 x")),
 'wrong_content':hub(ans(json.dumps(need)),file=ans(content[:-1]+"]")),
 'cut':hub(ans(json.dumps(need)),file=ans(content)[:-4]),
 'chunked':hub(ans(json.dumps(need)),file="HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"%(len(content),content)),
 'other_range':hub(ans(json.dumps(need)),file=ans(content,"Content-Range: bytes 7-9/10\r\n","206 x")),
 'path_out':hub(ans(json.dumps(need+[f("../../x")]))),
 'size_large':hub(ans(json.dumps([f("config.json",size=2**62)]+need[1:]))),
 'find_sizes_overflow':hub(ans(json.dumps([f("config.json",size=2**63-1),f("model.safetensors",True,size=2**63-1),f("tokenizer.json",size=2,hash="a"*40)]))),
 'size_negative':hub(ans(json.dumps([f("config.json",size=-1)]))),
 'hash_odd':hub(ans(json.dumps([f("config.json",hash="../../x")]))),
 'no_commit':hub(ans("[]"),rev=ans('{"sha": "main"}')),
 'not_json':hub(ans("<html>"),rev=ans("<html>")),
 'nothing':"",
 }.items(): put('hub',name,t)
