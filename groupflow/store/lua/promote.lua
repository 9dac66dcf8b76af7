#!lua flags=allow-oom
-- promote: what was delayed and is due now may be claimed, and what waited for a daemon that knows its type, once one
-- does; pauses, and limits by hand, that are over end. What has to have started by now is due too, and what a claim found
-- to be late: that is for `expire`.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 how many tasks, and how many groups, at most · 2 'tell' where the caller tells its log what people did
-- returns  { how many were promoted, µs until the next is due or -1; where there are any, which limits by hand
--          began and ended (see `by_hand.lua`) }
local now = clock()
local promoted = 0
local function due_in(index) return call('ZRANGEBYSCORE', index, '-inf', digits(now), 'LIMIT', 0, ARGV[1]) end

-- A type that a daemon has come to know, if any.
local function known_type()
  local first = call('ZRANGE', K.unknown, 0, 0, 'WITHSCORES')
  return tonumber(first[2] or nil) == 0 and first[1]
end

local known = known_type()
for _, id in ipairs(known and call('ZRANGE', K.unknown_tasks .. known, 0, ARGV[1] - 1) or {}) do
  local facts = call('HMGET', K.task_state .. id, 'unknown', 'sequence', 'group')
  call('ZREM', K.unknown_tasks .. known, id)
  if facts[1] then -- else an operator has deleted keys
    local entry, group = facts[2] .. '+' .. id, facts[3]
    call('HDEL', K.task_state .. id, 'unknown')
    call('HSET', K.task_state .. id, 'due', digits(now))
    if leave_aside(entry, group) then put_back(entry, group, now) elseif group ~= '' then place(group, now) end
    wake_for(group)
    promoted = promoted + 1
  end
end
if known and call('EXISTS', K.unknown_tasks .. known) == 0 then call('ZREM', K.unknown, known) end
for _, entry in ipairs(due_in(K.delayed)) do
  rouse(id_of(entry))
  local group = call('HGET', K.task_state .. id_of(entry), 'group') or ''
  leave_aside(entry, group)
  put_back(entry, group, now)
  wake_for(group)
  promoted = promoted + 1
end
if is_limiting() then
  local turned = tenants().promote(ARGV[1], now)
  if is_capping() then turned = turned + caps().promote(ARGV[1], now) end
  if turned > 0 then wake() end
  promoted = promoted + turned
end
if not is_capping() then call('DEL', K.cap_reviews, K.cap_standing) end -- no line is left to be looked at
for _, group in ipairs(due_in(K.held)) do
  call('ZREM', K.held, group)
  if place(group, now) then wake_for(group) end
  promoted = promoted + 1
end
for _, group in ipairs(due_in(K.resumes)) do
  resume(group, now)
  promoted = promoted + 1
end
local over_by_hand = due_in(K.by_hand_ends)
end_by_hand(over_by_hand, '', now)
promoted = promoted + #over_by_hand
-- These wait for no delay from now on, even in a group that runs or is paused.
for _, id in ipairs(due_in(K.late)) do remove_delay(id) end
if is_limiting() then
  limits().forget(K.rates, now, ARGV[1])
  limits().forget(K.closed, now, ARGV[1])
end
local wait = known_type() and 0 or -1
local TIMES = {
  K.delayed, K.held, K.late, K.resumes, K.standing, K.by_hand_ends, K.cap_standing, K.expiring,
}
for _, key in ipairs(TIMES) do
  local nearest = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  if nearest and tonumber(nearest) < NO_END then
    local left = math.max(0, tonumber(nearest) - now)
    if wait < 0 or left < wait then wait = left end
  end
end
if call('EXISTS', K.cap_reviews) == 1 or call('HEXISTS', K.count, 'expired_unsaid') == 1 then wait = 0 end
local news = ARGV[2] == 'tell' and call('RPOP', K.by_hand_news, ARGV[1])
return { promoted, wait, news or nil }
