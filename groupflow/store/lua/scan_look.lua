#!lua flags=no-writes
-- scan_look: what is agreed about a scan. Runs with the keys of the namespace itself.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 the scan · 2 'carried' where what the last generation left is to be told too
-- returns  { Redis's clock (µs), names and values as a flat list; empty where there is no such scan }.
--          While it closes, what each shard has reported is among them.
local scan = K.scan .. ARGV[1]
if call('HEXISTS', scan, 'closing') == 1 then return { clock(), call('HGETALL', scan) } end
local found = {}
local names = { 'generation', 'count', 'wanted', 'token', 'after', 'done', ARGV[2] }
for i, value in ipairs(call('HMGET', scan, unpack(names))) do
  if value then found[#found + 1], found[#found + 2] = names[i], value end
end
return { clock(), found }
