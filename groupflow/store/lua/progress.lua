#!lua flags=allow-oom
-- progress: how far attempts have got, as their handlers say. It holds while the slot's checkpoint is live and has that
-- fence, which its readers compare (`progress_of` in `sessions.lua`): so nothing of the path has to clear it.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 session, as it shows it · then four each: slot · fence (16 digits) · µs since it was said
--          · [done, total or null, unit] (JSON)
-- returns  { state: OK, EXPIRED, REPLACED as for renew; then of each 1, or 0 where its slot holds another claim, or none }
local now, daemon = clock(), ARGV[1]
local answer = { session_state(daemon, ARGV[2]) }
for i = 3, answer[1] == 'OK' and #ARGV or 0, 4 do
  local slot, fence = ARGV[i], ARGV[i + 1]
  local claim = claim_of(call('HGET', K.worker .. daemon, slot) or '')
  local is_held = claim and claim.fence == fence
  if is_held then call('HSET', K.progress .. daemon, slot, fence .. digits(now - ARGV[i + 2]) .. ARGV[i + 3]) end
  answer[#answer + 1] = is_held and 1 or 0
end
return answer
