#!lua flags=allow-oom
-- pause: hold a group, or everything, for so long, or until an operator resumes it. Running tasks go on to their
-- end; new tasks wait in order. A pause that holds already takes the new end, unless it has no end: then it
-- keeps none.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 group, '' for everything · 2 by whom · 3 for how long (µs), '' for no end
-- returns  1, or 0 if it was paused already, and nothing changed
local refusal = other_layout()
if refusal then return refusal end
local now = clock()
local group, note = ARGV[1], cjson.encode({ ARGV[2], digits(now) })
local paused
if group == '' then
  paused = call('SETNX', K.paused_all, note)
else
  paused = call('HSETNX', K.paused, group, note)
end
local had_end = call('ZSCORE', K.resumes, group)
if (ARGV[3] or '') == '' then
  paused = math.max(paused, call('ZREM', K.resumes, group))
elseif paused == 1 or had_end then
  call('ZADD', K.resumes, digits(now + ARGV[3]), group)
  wake_at_due(K.resumes, now + ARGV[3])
  paused = 1
end
if group ~= '' then place(group, now) end
hold_back(group)
return paused
