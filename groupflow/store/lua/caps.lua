-- Behind the tenants, in every script: how many tasks of a type run at once, and how often they start.
--
-- A *cap* is a pattern of types, a name or one that ends in `*`, with a limit of its own. `caps` has by `c` and a
-- pattern what the configuration says: its number (of those that match a type the lowest holds), then tasks at once (0
-- for any) and the rate as in `limits`; by `h` and a pattern what was set by hand, until that is ended (`by_hand.lua`).
-- A pattern that is only set by hand goes before all configured ones, the longest first.
--
-- What is ready of a cap waits in *lines*, `cap_waits:` and a place: a kind as in `tenants.lua`, the pool, `/`, and the
-- cap. As long as something of the cap may start, the best of each line has its *turn*, noted in `cap_turns`: it stays
-- in the line, and stands where claims look too. If its tenant holds it back there, it waits for that tenant alone, and
-- the next one has the turn; a claim that meets it later asks the cap again. So claims look at one of a line at most,
-- and at none of a cap that has no room.
--
-- `cap_groups` and `cap_tasks` have by group, and by the entry of a plain task, the place where it waits. `cap_lines`
-- has all lines, by cap, in a zset of equal scores. `cap_standing` has the caps of which something waits and nothing
-- may start: until when (µs), or NO_END where one of its tasks has to end first. `cap_charged` has the running claims
-- of caps, by fence; `cap_charges` has them again, to be counted, as `charges` has those of tenants. Rates are by `y` and
-- the cap.

local may_cap
function is_capping()
  if may_cap == nil then may_cap = is_limiting() and call('EXISTS', K.caps, K.cap_charged, K.cap_lines) > 0 end
  return may_cap
end

local caps_made
function caps()
  if caps_made then return caps_made end
  local C, L = {}, limits()
  caps_made = C
  local INDEX = { g = 'ready', G = 'quarantined_groups', p = 'ordered', P = 'quarantined_plain' }
  local KNOWN = { g = K.cap_groups, G = K.cap_groups, p = K.cap_tasks, P = K.cap_tasks }
  local PASSES = 10 -- how many of a line may go on to their tenants in one turn
  local LONGEST = 255 -- bytes of a pattern

  local function place_in(kind, pool, cap) return kind .. (pool or '') .. '/' .. cap end
  local function cap_in(place) return string.match(place, '^[^/]*/(.*)$') end

  -- The cap of a type, false where it has none.
  local of_type = {}
  local function cap_of(task_type)
    if task_type == '' then return false end
    if of_type[task_type] ~= nil then return of_type[task_type] end
    local patterns, fields = { task_type }, {}
    for length = math.min(#task_type, LONGEST), 0, -1 do
      patterns[#patterns + 1] = sub(task_type, 1, length) .. '*'
    end
    for i, pattern in ipairs(patterns) do fields[2 * i - 1], fields[2 * i] = 'h' .. pattern, 'c' .. pattern end
    local known, cap, lowest = call('HMGET', K.caps, unpack(fields)), false, nil
    for i, pattern in ipairs(patterns) do
      local by_hand, configured = known[2 * i - 1], known[2 * i]
      local number = configured and tonumber(string.match(configured, '^%d+')) or (by_hand and -1)
      if number and (not lowest or number < lowest) then cap, lowest = pattern, number end
    end
    of_type[task_type] = cap
    return cap
  end

  -- The cap of a task, or nil.
  function C.of(entry)
    local _, _, _, task_type = L.facts_of(entry)
    return cap_of(task_type) or nil
  end

  local found = {}
  function C.limit_of(cap)
    if not found[cap] then
      local known = call('HMGET', K.caps, 'c' .. cap, 'h' .. cap)
      local limit = { concurrency = 0, interval = 0, tolerance = 0 }
      if known[1] then limit = L.parsed(string.match(known[1], '^%S+ (%S+) (%S+) (%S+) ?(.*)$')) end
      found[cap] = L.under(known[2] and L.shared(L.in_hand(known[2])), limit)
    end
    return found[cap]
  end

  function C.running(cap) return count_of(K.cap_charges, cap) end

  -- From when on something of a cap may start, and what sets it; nil where as many run as may.
  function C.free_at(cap, now)
    local limit = C.limit_of(cap)
    if limit.concurrency > 0 and C.running(cap) >= limit.concurrency then return nil end
    return L.free_by_clock('y' .. cap, limit, now)
  end

  function C.may_start(cap, now)
    local free = C.free_at(cap, now)
    return free and free <= now
  end

  -- A cap has to be looked at again, by `promote`.
  local function look_soon(cap, now)
    call('ZADD', K.cap_standing, digits(now), cap)
    wake_at_due(K.cap_standing, now)
  end

  local function enter_line(kind, pool, cap, thing, score)
    local place = place_in(kind, pool, cap)
    call('HSET', KNOWN[kind], thing, place)
    call('ZADD', K.cap_lines, 0, front_of(cap) .. kind .. (pool or ''))
    line_up(K.cap_waits .. place, score, thing)
  end

  -- Takes a group or a plain task out of its line, and its turn. Returns the cap, whose turn the caller gives on.
  local function leave_line(known, thing)
    local place = call('HGET', known, thing)
    if not place then return nil end
    call('HDEL', known, thing)
    call('ZREM', K.cap_waits .. place, thing)
    if call('HGET', K.cap_turns, place) == thing then call('HDEL', K.cap_turns, place) end
    local cap = cap_in(place)
    if call('EXISTS', K.cap_waits .. place) == 0 then
      call('ZREM', K.cap_lines, front_of(cap) .. sub(place, 1, -#cap - 2))
    end
    return cap
  end
  function C.leave(group) return leave_line(K.cap_groups, group) end
  function C.leave_plain(entry) return leave_line(K.cap_tasks, entry) end

  -- The cap of what waits in a line, as caps are now; nil where it has none any more.
  local function own_of(kind, thing)
    return C.of(KNOWN[kind] == K.cap_groups and call('LINDEX', K.lane .. thing, -1) or thing)
  end

  -- What waits in a line waits in that of another cap from here on, since caps have changed.
  local function change_line(kind, pool, own, thing, score, now)
    leave_line(KNOWN[kind], thing)
    enter_line(kind, pool, own, thing, score)
    look_soon(own, now)
  end

  -- What had the turn of a line only waits there, or in that of its cap as caps are now.
  local function withdraw(kind, pool, cap, thing, now)
    local place = place_in(kind, pool, cap)
    call('HDEL', K.cap_turns, place)
    if KNOWN[kind] == K.cap_groups then
      tenants().leave(thing, now)
      leave_indexes(thing)
    elseif not tenants().leave_plain(thing, now) then
      call('ZREM', index_of(INDEX[kind], pool), thing)
    end
    local own = own_of(kind, thing)
    if own and own ~= cap then
      change_line(kind, pool, own, thing, call('ZSCORE', K.cap_waits .. place, thing), now)
    end
  end

  -- Lets the best of a line stand where claims look. Returns whether it does: else it has left the line, for its
  -- tenant's, or for that of another cap, if the caps have changed.
  local function stands(kind, pool, cap, thing, score, now)
    local is_group = KNOWN[kind] == K.cap_groups
    local entry = is_group and call('LINDEX', K.lane .. thing, -1) or thing
    local own = C.of(entry) or cap
    if own ~= cap then
      change_line(kind, pool, own, thing, score, now)
      return false
    end
    local is_quarantined = kind == 'G' or kind == 'P'
    if is_group then
      stand(thing, entry, is_quarantined, pool, score, now)
    else
      stand_plain(thing, is_quarantined, pool, score, now)
    end
    if call('ZSCORE', index_of(INDEX[kind], pool), thing) then return true end
    leave_line(KNOWN[kind], thing)
    return false
  end

  -- Gives the turn of a line to its best, and takes it from another. Returns false where there may be more to look at.
  local function give_turn(kind, pool, cap, placed, now)
    local place = place_in(kind, pool, cap)
    local holder = call('HGET', K.cap_turns, place)
    for _ = 1, PASSES do
      local best = call('ZRANGE', K.cap_waits .. place, 0, 0, 'WITHSCORES')
      if not best[1] or (best[1] == holder and best[1] ~= placed) then return true end
      if holder and best[1] ~= holder then withdraw(kind, pool, cap, holder, now) end
      if stands(kind, pool, cap, best[1], best[2], now) then
        call('HSET', K.cap_turns, place, best[1])
        return true
      end
      holder = nil
    end
    return false
  end

  -- Gives the lines of a cap their turns where something of it may start, else takes them. `placed` is what has come to
  -- wait, or waits with another score.
  function C.turn(cap, now, placed)
    local free, front = C.free_at(cap, now), front_of(cap)
    local may_start, does_wait, is_whole = free ~= nil and free <= now, {}, true
    for _, line in ipairs(call('ZRANGE', K.cap_lines, '[' .. front, '(' .. front .. '\255', 'BYLEX')) do
      local kind, pool = sub(line, #front + 1, #front + 1), sub(line, #front + 2)
      pool = pool ~= '' and pool or nil
      local place = place_in(kind, pool, cap)
      local holder = call('HGET', K.cap_turns, place)
      if may_start then
        is_whole = give_turn(kind, pool, cap, placed, now) and is_whole
      elseif holder then
        withdraw(kind, pool, cap, holder, now)
      end
      if call('EXISTS', K.cap_waits .. place) == 1 then
        does_wait[#does_wait + 1] = pool and 'pool' or KNOWN[kind] == K.cap_groups and 'grouped' or 'plain'
      end
    end
    if #does_wait > 0 and not may_start then
      call('ZADD', K.cap_standing, free and digits(free) or NO_END, cap)
      if free then wake_at_due(K.cap_standing, free) end
    elseif not is_whole then
      look_soon(cap, now)
    elseif call('ZREM', K.cap_standing, cap) == 1 then
      for _, what in ipairs(does_wait) do tell(what) end
    end
  end

  -- Lets what is ready wait for its cap: a group, whose head is `entry`, or a plain task. Returns whether it may be
  -- claimed now; nil where it has no cap.
  function C.line_up(kind, pool, thing, entry, score, now)
    local cap, before = C.of(entry), call('HGET', KNOWN[kind], thing)
    local place = cap and place_in(kind, pool, cap)
    if before and before ~= place then
      local left = leave_line(KNOWN[kind], thing)
      if left ~= cap then C.turn(left, now) end
    end
    if not cap then return nil end
    if before ~= place and KNOWN[kind] == K.cap_groups then
      tenants().leave(thing, now)
      leave_indexes(thing)
    end
    enter_line(kind, pool, cap, thing, score)
    C.turn(cap, now, thing)
    return call('HGET', K.cap_turns, place) == thing
  end

  -- A plain task that waits in a line has another score.
  function C.reorder(entry, score, now)
    local place = call('HGET', K.cap_tasks, entry)
    call('ZADD', K.cap_waits .. place, score, entry)
    C.turn(cap_in(place), now, entry)
  end

  -- A plain task without a task state would wait here.
  function C.queue_of(id)
    local cap = C.of(digits(0) .. '.' .. id)
    return cap and K.cap_waits .. place_in('p', nil, cap)
  end

  -- A tenant's turn has gone from something that had that of a cap: now it waits for its tenant alone.
  function C.lose(kind, thing, now)
    local place = call('HGET', KNOWN[kind], thing)
    if not place or call('HGET', K.cap_turns, place) ~= thing then return end
    look_soon(leave_line(KNOWN[kind], thing), now)
  end

  local function charge(cap, fence) L.charge(K.cap_charged, K.cap_charges, cap, fence) end
  local function uncharge(fence) return L.uncharge(K.cap_charged, K.cap_charges, fence) end

  -- A claim of a task counts for its cap as that is now, under a fence; `before` is one under which it counted so far.
  -- Returns the cap for which it counts no more, whose turn the caller gives on.
  function C.recharge(before, fence, entry)
    local cap, was = C.of(entry), call('HGET', K.cap_charged, before) or nil
    if cap == was and before == fence then return nil end
    uncharge(before)
    if cap then charge(cap, fence) end
    return was ~= cap and was or nil
  end

  -- Something of a cap has started (fence: 16 digits).
  function C.start(cap, fence, now)
    local limit = C.limit_of(cap)
    charge(cap, fence)
    if limit.interval > 0 then L.advance('y' .. cap, limit, now) end
    C.turn(cap, now)
  end

  -- A claim has ended.
  function C.let_go(fence, now)
    local cap = uncharge(fence)
    if cap then C.turn(cap, now) end
  end

  -- The caps have changed: what waits in a line may be of another one now. `cap_reviews` has the lines that are still
  -- to be looked at, and how much of each was, from its end: so what leaves it at its head, or comes, hides nothing.
  local function review(most, now)
    local place, seen = unpack(call('ZRANGE', K.cap_reviews, 0, 0, 'WITHSCORES'))
    if not place then return 0 end
    local kind, cap = sub(place, 1, 1), cap_in(place)
    local pool = string.match(place, '^.([^/]+)/')
    local page, moved = call('ZRANGE', K.cap_waits .. place, seen, seen + most - 1, 'REV', 'WITHSCORES'), 0
    for i = 1, #page, 2 do
      local thing = page[i]
      local own = own_of(kind, thing)
      if own and own ~= cap and call('HGET', K.cap_turns, place) ~= thing then
        change_line(kind, pool, own, thing, page[i + 1], now)
        moved = moved + 1
      end
    end
    if #page < 2 * most then
      call('ZREM', K.cap_reviews, place)
      C.turn(cap, now)
    else
      call('ZADD', K.cap_reviews, seen + most - moved, place)
    end
    return #page / 2
  end

  -- Looks at up to `most` caps whose rate lets something start now, and at so much that waits in lines to review.
  -- Returns how many there were.
  function C.promote(most, now)
    local reviewed = review(tonumber(most), now)
    local due = call('ZRANGEBYSCORE', K.cap_standing, '-inf', digits(now), 'LIMIT', 0, most)
    for _, cap in ipairs(due) do C.turn(cap, now) end
    return #due + reviewed
  end

  -- What operators are told of a cap.
  function C.told_of(cap, now)
    local free, what = C.free_at(cap, now)
    local own = C.limit_of(cap)
    return {
      name = cap, running = C.running(cap), concurrency = own.concurrency, by_hand = own.till, rate = own.rate,
      free = free, limited_by = free and free > now and what or nil, waiting = C.groups_of(cap),
    }
  end

  -- How many groups wait in the lines of a cap.
  function C.groups_of(cap)
    local front, number = front_of(cap), 0
    for _, line in ipairs(call('ZRANGE', K.cap_lines, '[' .. front, '(' .. front .. '\255', 'BYLEX')) do
      local place = sub(line, #front + 1) .. '/' .. cap
      if KNOWN[sub(place, 1, 1)] == K.cap_groups then number = number + call('ZCARD', K.cap_waits .. place) end
    end
    return number
  end

  -- What may start behind what has the turn of a line, `most` at most, with their scores: as many as its cap has room
  -- for; none under a rate.
  function C.behind(kind, thing, most)
    local place = call('HGET', KNOWN[kind], thing)
    if not place or call('HGET', K.cap_turns, place) ~= thing then return {} end
    local cap = cap_in(place)
    local limit = C.limit_of(cap)
    if limit.interval > 0 then return {} end
    if limit.concurrency > 0 then most = math.min(most, limit.concurrency - C.running(cap) - 1) end
    return most > 0 and call('ZRANGE', K.cap_waits .. place, 1, most, 'WITHSCORES') or {}
  end

  -- The cap in whose line a group waits, if any; and whether it has the turn there.
  function C.waits_for(group)
    local place = call('HGET', K.cap_groups, group)
    if not place then return nil, false end
    return cap_in(place), call('HGET', K.cap_turns, place) == group
  end

  -- Looks at all caps of which something waits, since these have changed.
  function C.turn_all(now)
    local seen = {}
    for _, line in ipairs(call('ZRANGE', K.cap_lines, 0, 9999)) do
      local length = tonumber(sub(line, 1, 4))
      local cap = sub(line, 5, 4 + length)
      call('ZADD', K.cap_reviews, 0, sub(line, 5 + length) .. '/' .. cap)
      if not seen[cap] then C.turn(cap, now) end
      seen[cap] = true
    end
    C.promote(PASSES, now)
    tell('due')
  end
  return C
end
