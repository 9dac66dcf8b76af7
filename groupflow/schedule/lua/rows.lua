-- Behind the prelude in scripts that look at schedules. A schedule is a row, `schedule:<name>`, and its place in
-- `schedules`, whose score is when it is due next: only that says whether a tick has been made. A daemon that
-- makes one passes the due time that it has seen, and the same script changes it.
--
-- A row has: its definition and its timing (digests), when the configuration that it is of was loaded, and
-- when and by whom it was last presented; what its ticks are made of (MESSAGE); `decided`, the last tick of
-- which anything was decided; its newest runs (JSON, each { tick, id, kind, outcome, at }, times as digits);
-- totals; which operator paused it and since when. With `gone` it lies in another partition, or is about to.

local MESSAGE = { 'told', 'interval', 'overlap', 'group', 'priority', 'delay', 'aside', 'envelope', 'facts', 'scope' }
local RUNS = 20
local OUTLIVED = 60000000 -- µs without a daemon that presents a definition, until an older one may have the row
local NOT_DUE = '8000000000000000' -- no tick comes before that

local function runs_of(row)
  local kept = call('HGET', row, 'runs')
  return kept and cjson.decode(kept) or {}
end

local function keep_runs(row, runs)
  while #runs > RUNS do runs[#runs] = nil end
  call('HSET', row, 'runs', #runs > 0 and cjson.encode(runs) or '[]')
end

-- Whether a run's task waits, is delayed or runs.
local function is_open(run)
  return run ~= nil and call('HEXISTS', K.tasks, run[2]) == 1 and not call('ZSCORE', K.dead, run[2])
end

local TOLD = { done = true, superseded = true, cancelled = true, expired = true }

-- How a run has ended, and when: 'done', 'superseded', 'cancelled', 'expired', 'dropped', 'dead', or 'over' if nothing is
-- known of it any more; '' if it hasn't. A dead letter may be redriven, so its outcome is looked up again.
local function outcome_of(run, now)
  if run[4] ~= '' and run[4] ~= 'dead' then return run[4], run[5] end
  local id = run[2]
  if call('HEXISTS', K.tasks, id) == 1 then
    local died = call('ZSCORE', K.dead, id)
    if died then return 'dead', digits(died) end
    return '', ''
  end
  local line = call('HGET', K.history_new, id) or call('HGET', K.history_old, id)
  if not line then return 'over', digits(now) end
  local is_sound, facts = pcall(cjson.decode, sub(line, 17))
  local how = is_sound and facts[1]
  return TOLD[how] and how or 'dropped', sub(line, 1, 16)
end

-- Brings the outcomes of runs up to date. Returns whether any has changed.
local function look_after(runs, now)
  local has_changed = false
  for _, run in ipairs(runs) do
    local outcome, at = outcome_of(run, now)
    if outcome ~= run[4] then
      run[4], run[5], has_changed = outcome, at, true
    end
  end
  return has_changed
end

-- Whether a definition may have a row that has another one: its configuration was loaded later, or no daemon
-- presents the other one any more.
local function may_take(row, definition, loaded, now)
  local known = call('HMGET', row, 'definition', 'loaded', 'presented')
  return not known[1] or known[1] == definition or tonumber(loaded) > tonumber(known[2])
    or tonumber(known[3]) < now - OUTLIVED
end

local function note_rival(row, daemon, now)
  call('HSET', row, 'rival', daemon, 'rival_at', digits(now))
end

-- Notes that a daemon has a row's definition in its configuration.
local function note_present(row, daemon, definition, loaded, now)
  local known = call('HMGET', row, 'definition', 'loaded')
  if known[1] == definition and tonumber(known[2]) > tonumber(loaded) then loaded = known[2] end
  call('HSET', row, 'definition', definition, 'loaded', digits(loaded), 'presented', digits(now), 'by', daemon)
end

local function forget_schedule(name)
  call('DEL', K.schedule .. name)
  call('ZREM', K.schedules, name)
end
