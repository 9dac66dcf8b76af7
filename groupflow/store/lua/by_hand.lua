-- Behind the prelude in the scripts that begin and end limits set by hand.
--
-- `by_hand` has them by `g` and a group, `t` and a tenant's name in all applications, or `y` and a pattern of types
-- (`caps.lua`, which has them in `caps` too): until when (µs, 16 digits),
-- tasks at once, µs between two starts (0: no rate), µs that a start may come before its time, since when (µs), and the
-- rate as it was written; behind a line feed, who set it. A `-` in place of the second to fourth means: as configured.
-- A tenant's and a type's are for all partitions together (`shared` takes this one's share). `by_hand_ends` has when
-- each ends. A limit that is over holds nothing, even before it is removed; only that of a type holds until then.
--
-- `by_hand_news` has which began and ended, by the same, until a daemon has told its log (JSON).

local MOST_NEWS = 1000
local LOOKED_AT = 10000 -- tenants that wait, or have a turn, at most; others' claims come upon the change
local OF_GROUP, OF_TYPE = byte('g'), byte('y')

local function note_by_hand(what, whose, text, by)
  if call('LLEN', K.by_hand_news) >= MOST_NEWS then return end
  local till, concurrency, rate = string.match(text, '^(%d+) (%S+) %S+ %S+ %d+ ?([^\n]*)')
  call('LPUSH', K.by_hand_news, cjson.encode({ what, whose, till, concurrency, rate, by }))
end

-- The limits of these have changed: places at once what they hold back, or let go.
local function look_again(changed, now)
  may_limit, limits_made, tenants_made = true, nil, nil -- true: what was limited until now is placed as such
  local names, has_tenants, has_types = {}, false, false
  for _, whose in ipairs(changed) do
    if byte(whose) == OF_GROUP then
      call('ZREM', K.held, sub(whose, 2))
      place(sub(whose, 2), now)
    elseif byte(whose) == OF_TYPE then
      has_types = true
    else
      names[sub(whose, 2)], has_tenants = true, true
    end
  end
  local seen = {}
  local function turn(tenant)
    if names[sub(tenant, 9)] and not seen[tenant] then tenants().turn(tenant, now) end
    seen[tenant] = true
  end
  if has_tenants then
    for _, tenant in ipairs(call('ZRANGE', K.standing, 0, LOOKED_AT - 1)) do turn(tenant) end
    for _, place_of in ipairs(call('HLEN', K.turns) <= LOOKED_AT and call('HKEYS', K.turns) or {}) do
      turn(sub(place_of, 2))
    end
  end
  if has_types then review_caps(now) end
  wake()
  tell('due')
end

-- Limits begin, and replace what was set by hand before.
local function begin_by_hand(whose, text, now)
  call('HSET', K.by_hand, whose, text)
  call('ZADD', K.by_hand_ends, sub(text, 1, 16), whose)
  may_limit, limits_made, tenants_made = true, nil, nil
  if byte(whose) == OF_TYPE then
    call('HSET', K.caps, 'h' .. sub(whose, 2), text)
  elseif byte(whose) ~= OF_GROUP then
    charge_running(sub(whose, 2))
  end
  look_again({ whose }, now)
  hold_back(byte(whose) == OF_GROUP and sub(whose, 2) or '')
end

-- Limits end; `by` is the operator, or '' where their time is over.
local function end_by_hand(ended, by, now)
  for _, whose in ipairs(ended) do
    local text = call('HGET', K.by_hand, whose)
    call('HDEL', K.by_hand, whose)
    if byte(whose) == OF_TYPE then call('HDEL', K.caps, 'h' .. sub(whose, 2)) end
    call('ZREM', K.by_hand_ends, whose)
    if text then note_by_hand('ended', whose, text, by) end
  end
  if #ended > 0 then look_again(ended, now) end
end
