#!lua flags=allow-oom
-- complete: the tasks are done. Each leaves the store but for its line in the history, and its
-- group goes on.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 daemon · 2 session · 3 'wake' where the caller claims nothing right behind it, and others
--          have to hear that a group is free · then five a claim: worker · fence · element · group
--          · its line for the history
-- returns  { state, one 1 (accepted, also a repeat) or 0 (the fence is stale) a claim }
local daemon = ARGV[1]
local state = session_state(daemon, ARGV[2])
if state ~= 'OK' then return { state, {} } end
local now, verdicts, done = clock(), {}, 0
local freed = false
for i = 4, #ARGV, 5 do
  local element, group = ARGV[i + 2], ARGV[i + 3]
  local claim = end_claim(daemon, ARGV[i], ARGV[i + 1], group)
  if claim == 'live' then
    local id = id_of(element)
    call('DEL', K.task .. id, K.life .. id)
    call('HSET', K.history_new, id, digits(now) .. ARGV[i + 4])
    if group ~= '' and place(group, now) then freed = true end
    count_end(group)
    done = done + 1
  end
  verdicts[#verdicts + 1] = claim == 'lost' and 0 or 1
end
if done > 0 then call('HINCRBY', K.count, 'done', done) end
write_counts(false)
if freed and ARGV[3] == 'wake' then wake() end
return { 'OK', verdicts }
