-- In `exchange`, before the rules. Nearly always nothing is paused, limited, in quarantine, to be cancelled or to expire,
-- nothing goes back, and no task has a task state. Then this does all that `exchange` promises, in bulk, and Redis need
-- not make the functions of the rules, which cost more than an exchange of few tasks. It reads first. Where it meets
-- anything else it leaves all as it was, but for fences that no claim gets, and the rest of the script does the whole.
--
-- A group that a settled task frees isn't ready in between: where its next task is among the best, that has its lock.

-- A claim may be of several tasks of its group, a run. Those behind the first one wait in their lane, where the lock
-- keeps them for its slot, which goes on with them and says so later; the key `runs` says how far that reaches. A task
-- with a task state is never of a run: it may be delayed, or a quarantined task, or large.

local MOST_BEGUN = 500 -- tasks that one script adds to runs

-- Begins runs, for the claims in the rows behind place `last`, as far as their rules let them (`sizes`, by rule; JSON).
-- `follows(group, entry)` returns what says of a task whether it may follow that one, if any may. The row gets the first
-- one's fence, then entry and envelope of each in turn; each task has a fence of its own.
local function begin_runs(rows, last, sizes, follows)
  local room = MOST_BEGUN
  sizes = cjson.decode(sizes)

  local function run_of(envelope)
    local is_sound, facts = pcall(cjson.decode, string.match(envelope, '^[^\n]*'))
    return is_sound and type(facts) == 'table' and sizes[facts[4]] or 1
  end

  -- The next entries of a lane, as a flat list: entry · envelope.
  local function next_in_lane(group, most, may_follow)
    if most < 1 then return {} end
    local entries, ids, found = call('LRANGE', K.lane .. group, -most, -1), {}, {}
    for i = #entries, 1, -1 do
      if has_state(entries[i]) or not may_follow(entries[i]) then break end
      ids[#ids + 1] = id_of(entries[i])
    end
    local envelopes = #ids > 0 and call('HMGET', K.tasks, unpack(ids)) or {}
    for i = 1, #ids do
      if not envelopes[i] then break end
      found[2 * i - 1], found[2 * i] = entries[#entries - i + 1], envelopes[i]
    end
    return found
  end

  for at = last, #rows - 7, 7 do
    local entry, group = rows[at + 3], rows[at + 4]
    local run = not has_state(entry) and run_of(rows[at + 5]) or 1
    local may_follow = run > 1 and follows(group, entry)
    local found = may_follow and next_in_lane(group, math.min(run - 1, room), may_follow) or {}
    local number = #found / 2
    if number > 0 then
      local fence = call('INCRBY', K.fence, number)
      call('HSET', K.runs, group, digits(fence) .. sub(found[2 * number - 1], 1, 16))
      table.insert(found, 1, digits(fence - number + 1))
      rows[at + 7] = found
      room = room - number
    end
  end
end

local daemon, is_plain, number_runs, number_done = ARGV[1], ARGV[3] == 'plain', tonumber(ARGV[7]), tonumber(ARGV[4])
local more = ARGV[9] == 'told' and 2 or 0
local now, worker, lane, lock, asked, before_slots

local function is_ordinary()
  if ORDER == 'tenants' or ARGV[5] ~= '0' then return false end
  local known = call('HMGET', K.daemon .. daemon, 'session', 'process', 'quarantined')
  if not known[1] or known[1] .. known[2] ~= ARGV[2] or known[3] then return false end
  now, worker, lane, lock = clock(), K.worker .. daemon, K.lane, K.lock
  if tonumber(call('ZSCORE', K.daemons, daemon) or 0) < now then return false end -- nor is a puller there
  return call('EXISTS', K.limits, K.by_hand, K.sharing, K.rates, K.closed, K.charged, K.turns, K.standing,
    K.caps, K.cap_charged, K.cap_lines,
    K.parked, K.paused, K.paused_all, K.recovering, K.outbox_full, K.quarantined_groups, K.quarantined_plain, K.ordered,
    K.cancels, K.expiring) == 0
end

-- What is told: the slots with their new checkpoints; the ids that are done and their lines; by group of a run, how many
-- of its tasks have to leave the lane; the groups freed, each with its score, and the locks of those that have no task
-- left; what is told of the ids, and their results. Returns nil where a slot holds anything else, is told of twice, or where a run goes on.
local function read_told()
  local slots, places, i = {}, {}, 12 + 2 * ARGV[11]
  for n = 1, number_runs do
    if ARGV[i + 2] ~= '' then return nil end
    slots[n], places[n] = ARGV[i], i
    i = i + 5 + (3 + more) * ARGV[i + 4]
  end
  for n = number_runs + 1, number_runs + number_done do
    slots[n], places[n] = ARGV[i], i
    i = i + 5 + more
  end
  local told = {
    slots = slots, before = {}, verdicts = {}, ended = {}, lines = {}, left = {}, freed = {}, unlocked = {}, outbox = {},
    results = {},
  }
  local last, number, at, ended = #slots, 0, digits(now), told.ended
  before_slots, asked = i - 1, #ARGV - i + 1
  if last + asked == 0 then return nil end
  for n = 1, asked do slots[last + n] = ARGV[before_slots + n] end
  local checkpoints = call('HMGET', worker, unpack(slots))

  for n = 1, last do
    local place, checkpoint, from, most = places[n], checkpoints[n], places[n] + 1, 1
    local group, entries = ARGV[place + 3], nil
    if n <= number_runs then
      group, from, most = ARGV[place + 1], place + 5, tonumber(ARGV[place + 4])
      entries = most > 1 and call('LRANGE', lane .. group, 1 - most, -1)
      told.left[group] = most - 1
    end
    if not checkpoint or byte(checkpoint) ~= LIVE or sub(checkpoint, 2, 17) ~= ARGV[from] then return nil end
    if told.before[slots[n]] then return nil end
    if (group == '') ~= is_plain then return nil end
    for k = 1, most do
      local entry = ARGV[from + 1]
      if has_state(entry) or (k > 1 and entries[most - k + 1] ~= entry) then return nil end
      number = number + 1
      ended[number] = id_of(entry)
      local line = from + (n <= number_runs and 2 or 3)
      told.lines[2 * number - 1], told.lines[2 * number] = ended[number], at .. ARGV[line]
      if more > 0 and ARGV[line + 1] ~= '' then told.outbox[#told.outbox + 1] = ARGV[line + 1] end
      if more > 0 and ARGV[line + 2] ~= '' then
        told.results[#told.results + 1], told.results[#told.results + 2] = ended[number], ARGV[line + 2]
      end
      from = from + 3 + more
    end
    told.before[slots[n]], told.verdicts[n] = 'S' .. (most > 1 and ARGV[from - 3 - more] or sub(checkpoint, 2, 17)), 1
    local head = not is_plain and call('LINDEX', lane .. group, -most)
    if head then
      if has_state(head) then return nil end
      told.freed[#told.freed + 1] = { group, ORDER == 'fair' and now or sequence_of(head) }
    elseif not is_plain then
      told.unlocked[#told.unlocked + 1] = lock .. group
    end
  end
  for n = last + 1, last + asked do
    local slot, checkpoint = slots[n], checkpoints[n]
    if checkpoint and not told.before[slot] then
      if byte(checkpoint) == LIVE then return nil end
      told.before[slot] = checkpoint
    end
    slots[n] = nil
  end
  return told
end

-- The best groups, which may be ready or freed: how many are ready, all of them in order, and by group whether it is
-- freed. Takes these out of `freed`. Returns nil where a group is both: it was ready though it had a lock.
local function choose(freed)
  local ready, groups, goes_on, from_ready = call('ZRANGE', K.ready, 0, asked - 1, 'WITHSCORES'), {}, {}, 0
  table.sort(freed, function(a, b) return a[2] > b[2] or (a[2] == b[2] and a[1] > b[1]) end)
  for n = 1, asked do
    local group, mine = ready[2 * from_ready + 1], freed[#freed]
    if group and mine then
      local score = tonumber(ready[2 * from_ready + 2])
      if score < mine[2] or (score == mine[2] and group < mine[1]) then mine = nil end
    end
    if mine then
      group, freed[#freed] = mine[1], nil
    elseif group then
      from_ready = from_ready + 1
    else
      break
    end
    if goes_on[group] ~= nil then return nil end
    groups[n], goes_on[group] = group, mine ~= nil
  end
  return from_ready, groups, goes_on
end

-- Takes the tasks of runs out of their lanes, then the heads of these groups, or the oldest plain tasks. Returns their
-- entries and envelopes; nil, with nothing taken, where one has a task state or is gone, or a ready group has a lock.
local function take(left, groups, locks)
  local gone, entries, ids, is_whole = {}, {}, {}, true
  for group, number in pairs(left) do gone[group] = number > 0 and call('RPOP', lane .. group, number) or nil end
  if is_plain then
    entries = asked > 0 and call('RPOP', K.plain, asked) or {}
  else
    for n = 1, #groups do entries[n] = call('RPOP', lane .. groups[n]) or '' end
  end
  for n = 1, #entries do
    ids[n] = id_of(entries[n])
    is_whole = is_whole and entries[n] ~= '' and not has_state(entries[n])
  end
  local envelopes = is_whole and #ids > 0 and call('HMGET', K.tasks, unpack(ids)) or {}
  for n = 1, #ids do is_whole = is_whole and envelopes[n] end
  if is_whole and #locks > 0 then is_whole = call('MSETNX', unpack(locks)) == 1 end
  if is_whole then return entries, envelopes end
  for n = #entries, 1, -1 do
    if entries[n] ~= '' then call('RPUSH', is_plain and K.plain or lane .. groups[n], entries[n]) end
  end
  for group, each in pairs(gone) do
    for n = #each, 1, -1 do call('RPUSH', lane .. group, each[n]) end
  end
  return nil
end

-- All that has ended leaves the store, but its line; what it frees is claimed or ready.
local function write_told(told, claimed)
  local ready, unlocked, ended, runs_over = {}, told.unlocked, told.ended, {}
  for n, each in ipairs(told.freed) do
    unlocked[#unlocked + 1] = lock .. each[1]
    ready[2 * n - 1], ready[2 * n] = digits(each[2]), each[1]
  end
  if #unlocked > 0 then call('DEL', unpack(unlocked)) end
  if #ready > 0 then
    call('ZADD', K.ready, unpack(ready))
    if asked < #told.slots then tell('grouped') end
  end
  for n = 1, #ended, 500 do
    call('HDEL', K.tasks, unpack(ended, n, math.min(n + 499, #ended)))
    call('HSET', K.history_new, unpack(told.lines, 2 * n - 1, math.min(2 * n + 998, 2 * #ended)))
  end
  local queued, running, kind = claimed, claimed - #told.slots, is_plain and 'plain' or 'grouped'
  for group, number in pairs(told.left) do
    queued, runs_over[#runs_over + 1] = queued + number, group
  end
  if #runs_over > 0 then call('HDEL', K.runs, unpack(runs_over)) end
  if #ended > 0 then call('HINCRBY', K.count, 'done', #ended) end
  for i = 12, 10 + 2 * ARGV[11], 2 do call('HINCRBY', K.tally, ARGV[i], ARGV[i + 1]) end
  if #told.outbox > 0 then put_out(told.outbox, now) end
  if #told.results > 0 then keep_results(told.results) end
  if not is_plain then keep_lately(ended) end
  if running ~= 0 then call('HINCRBY', K.count, 'running_' .. kind, running) end
  if queued > 0 then call('HINCRBY', K.count, 'queued_' .. kind, -queued) end
end

local function do_in_bulk()
  local told = is_ordinary() and read_told()
  if not told then return nil end
  local from_ready, groups, goes_on, locks, passed_on, first = 0, {}, {}, {}, {}, 0
  if asked > 0 then
    if not is_plain then from_ready, groups, goes_on = choose(told.freed) end
    if not from_ready then return nil end
    -- Where nothing waits, nothing is written: neither the append-only file nor a replica hears of it.
    local most = is_plain and math.min(asked, call('LLEN', K.plain)) or #groups
    if most > 0 then first = call('INCRBY', K.fence, most) - most end
  end
  for n = 1, #groups do
    local each = goes_on[groups[n]] and passed_on or locks
    each[#each + 1] = lock .. groups[n]
    each[#each + 1] = digits(first + n) .. ' ' .. daemon .. ' ' .. ARGV[before_slots + n]
  end
  local entries, envelopes = take(told.left, groups, locks)
  if not entries then return nil end

  local since, rows, written, before = digits(now), {}, {}, told.before
  for n = 1, #entries do
    local slot, fence, group, row = ARGV[before_slots + n], digits(first + n), groups[n] or '', 7 * n - 7
    rows[row + 1], rows[row + 2], rows[row + 3], rows[row + 4] = slot, fence, entries[n], group
    rows[row + 5], rows[row + 6], rows[row + 7] = envelopes[n], '', ''
    written[2 * n - 1], written[2 * n] = slot, live(fence, before[slot], since, entries[n], group)
    before[slot] = nil
  end
  for _, slot in ipairs(told.slots) do
    if before[slot] then
      written[#written + 1], written[#written + 2] = slot, before[slot]
    end
  end
  if #written > 0 then call('HSET', worker, unpack(written)) end
  if #passed_on > 0 then call('MSET', unpack(passed_on)) end
  if from_ready > 0 then call('ZREMRANGEBYRANK', K.ready, 0, from_ready - 1) end
  write_told(told, #entries)
  if ARGV[6] ~= '' then
    local function any() return true end
    begin_runs(rows, 0, ARGV[6], function() return any end)
  end
  return { 'OK', told.verdicts, rows, now, 0, 0, 0 }
end

local done = do_in_bulk()
if done then return done end
