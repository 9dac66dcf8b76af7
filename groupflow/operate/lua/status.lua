#!lua flags=no-writes
-- status: the totals and the daemons, read in one instant.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     none
-- returns  { at (now), count: the hash of that name, in groups: ready, delayed, parked, paused; paused_too: the
--          paused ones that also run, or are parked; delayed_tasks, dead, dead_staying: those of them whose bodies
--          RabbitMQ refused; running_groups: those of which several tasks may run, and that are counted under none of these;
--          standing: how many of the delayed ones wait since their tenants may start nothing; standing_tenants:
--          how many tenants have something that waits so; of the first of them alone standing_plain: how many plain
--          tasks wait so, standing_waited: µs for which what goes next has waited, standing_names: those of which most
--          waits; sharing: how many tasks of such groups run;
--          waited_plain and waited_grouped: µs for which the task that goes next could have been claimed by daemons;
--          recovering: { since, until } (µs) if nothing is claimed, since this server may have lost writes;
--          capped: how many of the delayed ones wait since their types may start nothing; standing_types: how many
--          patterns of types are at such a limit; limited_groups, limited_tenants, limited_types: how many have limits
--          by hand; by_hand: some of those, the first to end first, each by `g` and a group, `t` and a tenant's name
--          or `y` and a pattern of types, and what `by_hand` has of it;
--          everything_paused (JSON), everything_ends (µs), if any;
--          outbox: entries that RabbitMQ is still to be told; outbox_age: µs for which the oldest has waited;
--          outbox_full: 1 if nothing is claimed, since the outbox has as many bytes as it may, else 0;
--          pools: rows of { name, plain, groups: plain tasks and heads of groups that wait for workers that pull
--          from it, workers: how many these are }, of those where something waits so;
--          daemons: rows of { name, lease_left (µs), info (JSON) } }
local SHOWN_BY_HAND, NAMED_TENANTS = 20, 3
local LOOKED_INTO = 100 -- tenants that may start nothing
local now, daemons = clock(), {}
local known = call('ZRANGE', K.daemons, 0, 999, 'WITHSCORES')
for i = 1, #known, 2 do
  local info = call('HGET', K.daemon .. known[i], 'info') or '{}'
  daemons[#daemons + 1] = named({ name = known[i], lease_left = tonumber(known[i + 1]) - now, info = info })
end
local function runs(group)
  if is_limiting() then return limits().running(group) > 0 end
  return call('EXISTS', K.lock .. group) == 1
end

-- A group that runs several tasks may also be ready, delayed or parked, and is counted there. There are as many as
-- workers at most.
local shared, sharing, running_groups = nil, call('ZCARD', K.sharing), 0
for _, member in ipairs(sharing > 0 and call('ZRANGE', K.sharing, 0, 99999) or {}) do
  local group = sub(member, 5, 4 + tonumber(sub(member, 1, 4)))
  if group ~= shared then
    shared = group
    local is_counted = call('HEXISTS', K.waiting_groups, group) == 1 or call('HEXISTS', K.cap_groups, group) == 1
      or call('ZSCORE', K.ready, group)
      or call('ZSCORE', K.quarantined_groups, group) or call('ZSCORE', K.held, group)
      or call('HEXISTS', K.parked, group) == 1
      or call('EXISTS', K.lock .. group) == 1
    if not is_counted then running_groups = running_groups + 1 end
  end
end

-- Groups that wait for the turns of their tenants, or of their types: those whose tenant or type may start nothing, and
-- the others without those that have the turn, which stand in the indexes. With many tenants it is an estimate.
local function in_lines(waiting, stand, turns, groups_of)
  local lined_up, standing = call('HLEN', waiting), 0
  for _, each in ipairs(call('ZRANGE', stand, 0, 1999)) do
    standing = standing + groups_of(each)
  end
  lined_up = lined_up - standing
  for _, turn in ipairs(lined_up > 0 and call('HLEN', turns) <= 2000 and call('HKEYS', turns) or {}) do
    if byte(turn) == 103 or byte(turn) == 71 then lined_up = lined_up - 1 end
  end
  return lined_up, standing
end

local standing_plain, standing_waited, most_waits = 0, 0, {}
local lined_up, standing = in_lines(K.waiting_groups, K.standing, K.turns, function(tenant)
  local of_groups = { K.waits .. 'g' .. tenant, K.waits .. 'G' .. tenant }
  local groups = count_in(of_groups)
  if #most_waits < LOOKED_INTO then
    local of_plain = { K.waits .. 'p' .. tenant, K.waits .. 'P' .. tenant }
    local plain = count_in(of_plain)
    standing_plain, most_waits[#most_waits + 1] = standing_plain + plain, { groups + plain, sub(tenant, 9) }
    standing_waited = math.max(standing_waited, longest_wait(of_groups, now, true), longest_wait(of_plain, now))
  end
  return groups
end)
table.sort(most_waits, function(a, b) return a[1] > b[1] end)
for i, each in ipairs(most_waits) do most_waits[i] = each[2] end
local capped_lines, capped = in_lines(K.cap_groups, K.cap_standing, K.cap_turns, function(cap)
  return caps().groups_of(cap)
end)

-- Operators pause few groups.
local paused_too = 0
for _, group in ipairs(call('HLEN', K.paused) <= 1000 and call('HKEYS', K.paused) or {}) do
  if runs(group) or call('HEXISTS', K.parked, group) == 1 then paused_too = paused_too + 1 end
end

-- Limits by hand: there are not many.
local limited, by_hand = { [103] = 0, [116] = 0, [121] = 0 }, {}
for _, whose in ipairs(call('ZRANGE', K.by_hand_ends, '(' .. digits(now), '+inf', 'BYSCORE')) do
  limited[byte(whose)] = limited[byte(whose)] + 1
  local text = #by_hand < SHOWN_BY_HAND and call('HGET', K.by_hand, whose)
  if text then by_hand[#by_hand + 1] = { whose, text } end
end
local of_pools = {}
for _, name in ipairs(pools()) do
  local groups, plain = indexes_of(name)
  groups, plain = count_in(groups), count_in(plain)
  if plain + groups > 0 then
    of_pools[#of_pools + 1] = named({ name = name, plain = plain, groups = groups, workers = pullers_of(name, now) })
  end
end
local untold = call('LINDEX', K.outbox, 0)
return named({
  at = now, count = call('HGETALL', K.count), daemons = daemons, dead = call('ZCARD', K.dead),
  ready = count_in(READY) + lined_up + capped_lines, delayed = call('ZCARD', K.held) + standing + capped,
  parked = call('HLEN', K.parked), paused = call('HLEN', K.paused),
  paused_too = paused_too,
  delayed_tasks = call('ZCARD', K.delayed), dead_staying = call('ZCARD', K.staying),
  waited_plain = math.max(waited(call('LINDEX', K.plain, -1), now), longest_wait(OWN_PLAIN, now)),
  waited_grouped = longest_wait(OWN_READY, now, true), everything_paused = call('GET', K.paused_all) or nil,
  recovering = recovering(now),
  everything_ends = call('ZSCORE', K.resumes, '') or nil,
  limited_groups = limited[103], limited_tenants = limited[116], limited_types = limited[121],
  by_hand = by_hand, capped = capped, standing_types = call('ZCARD', K.cap_standing),
  sharing = sharing, running_groups = running_groups,
  standing = standing, standing_tenants = call('ZCARD', K.standing), standing_plain = standing_plain,
  standing_waited = standing_waited, standing_names = { unpack(most_waits, 1, NAMED_TENANTS) },
  pools = of_pools, outbox = call('LLEN', K.outbox), outbox_full = call('EXISTS', K.outbox_full),
  outbox_age = untold and math.max(0, now - tonumber(sub(untold, 1, 16))) or 0,
})
