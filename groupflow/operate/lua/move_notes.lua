#!lua
-- move_notes: tell new partitions what an old one knows beside tasks: whose ids are whose, whether all is paused, which
-- rules want to know of drained groups, the last fence and arrival, which only rise. Each call may be made again.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 'out' · 2 '1' if the partition is to be none any more, and its totals go as well · 3 a cursor, '0' first ·
--          4 about how many ids at most
--          or 1 'in' · 2 where it comes from · 3 what 'out' packed · 4 '1' if the totals come here
-- returns  of 'out': { the cursor of more ids, '0' where there are none; packed: some ids, and all else }; else nothing
if ARGV[1] == 'out' then
  local totals = {}
  local count = ARGV[2] == '1' and call('HGETALL', K.count) or {}
  for i = 1, #count, 2 do totals[count[i]] = count[i + 1] end
  for _, name in ipairs({ 'sequence', 'told', 'outbox_bytes', 'results_bytes' }) do totals[name] = nil end
  -- Operators may end tasks before a daemon has told its configuration there.
  local limits, on_drained = call('HGETALL', K.limits), {}
  for i = 1, #limits, 2 do
    if byte(limits[i]) == 100 then on_drained[limits[i]] = limits[i + 1] end
  end
  local page = call('HSCAN', K.renamed, ARGV[3], 'COUNT', ARGV[4])
  return { page[1], cmsgpack.pack({
    totals = totals, on_drained = on_drained, renamed = page[2], paused_all = call('GET', K.paused_all) or nil,
    resumes_all = call('ZSCORE', K.resumes, '') or nil,
    segments = call('HMGET', K.segments, 'begun', 'closed', 'salt'),
    fence = call('GET', K.fence) or '0', sequence = call('HGET', K.count, 'sequence') or '0',
  }) }
end

local notes = cmsgpack.unpack(ARGV[3])
raise_fence(tonumber(notes.fence))
if tonumber(notes.sequence) > tonumber(call('HGET', K.count, 'sequence') or 0) then
  call('HSET', K.count, 'sequence', digits(notes.sequence))
end
for i = 1, #notes.renamed, 2 do
  local name, number = notes.renamed[i], notes.renamed[i + 1]
  local known = tonumber(call('HGET', K.renamed, name) or nil) or 0
  if tonumber(number) > known then call('HSET', K.renamed, name, number) end
end
if notes.resumes_all then call('ZADD', K.resumes, notes.resumes_all, '') end
for name, told in pairs(notes.on_drained) do call('HSETNX', K.limits, name, told) end
if notes.paused_all then call('SETNX', K.paused_all, notes.paused_all) end
for i, name in ipairs({ 'begun', 'closed' }) do
  local moment = notes.segments[i]
  local known = call('HGET', K.segments, name)
  if moment and (not known or known < moment) then call('HSET', K.segments, name, moment) end
end
local salts = call('HGET', K.segments, 'salt') or ''
for salt in string.gmatch(notes.segments[3] or '', '%S+') do
  if not string.find(salts, salt, 1, true) then salts = salts == '' and salt or salts .. ' ' .. salt end
end
if salts ~= '' then call('HSET', K.segments, 'salt', salts) end
call('DEL', K.samples, K.tally, K.tallies)
if ARGV[4] == '1' and call('HSETNX', K.moved, 'totals of ' .. ARGV[2], '1') == 1 then
  for name, number in pairs(notes.totals) do call('HINCRBY', K.count, name, number) end
end
