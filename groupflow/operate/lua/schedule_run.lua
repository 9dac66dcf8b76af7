#!lua
-- schedule_run: make a tick of a schedule now, due or not. A tick that is due stays due. A second call with the
-- same moment gives the same task.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 to 5 as of `enqueue` · 6 name · 7 the moment (16 digits) · 8 the same as text
-- returns  { 'MADE', id of its task }; { 'FULL', id }: it is a dead letter, since its group is full; { 'OPEN', id }:
--          the last one isn't over, and they mustn't overlap; { 'UNKNOWN', '' }: there is no such schedule here
local refusal = other_layout()
if refusal then return refusal end
local name, row = ARGV[6], K.schedule .. ARGV[6]
local known = call('HMGET', row, 'definition', 'gone', 'overlap')
if not known[1] or known[2] then return { 'UNKNOWN', '' } end
local runs, id = runs_of(row), 'schedule:' .. name .. ':' .. ARGV[8]
if runs[1] and runs[1][2] == id then return { call('ZSCORE', K.dead, id) and 'FULL' or 'MADE', id } end
if known[3] == 'skip' and is_open(runs[1]) then return { 'OPEN', runs[1][2] } end
look_after(runs, clock())
local ids, _, full = make(row, runs, { { ARGV[7], id, 'now', ARGV[8] } })
keep_runs(row, runs)
if full[1] then return { 'FULL', full[1] } end
return { 'MADE', ids[1] }
