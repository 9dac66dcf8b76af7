-- Behind the session rules in the scripts that open, keep and end sessions: whether this server may have lost writes,
-- and which daemons may still run something of them (docs/adr/0045).
--
-- An *epoch* is the time for which one server leads without a restart. Redis gives it an id: `master_replid` changes
-- when a replica is promoted and at every start. The first session script to run in a new epoch enters it. From then on
-- nothing is claimed (`recovering` exists) until every daemon known here has come, with proof that there is no other;
-- or until a lease has passed.

local epoch -- what is known of the epoch that this script runs in

-- What a daemon shows: the epoch of its session, the highest fence, arrival and session number that it was ever told,
-- and '1' where its session is a lease old.
local function shown_from(at)
  return {
    epoch = ARGV[at],
    fence = tonumber(ARGV[at + 1]),
    sequence = tonumber(ARGV[at + 2]),
    enrolled = ARGV[at + 3],
    is_old = ARGV[at + 4] == '1',
  }
end

-- The longest lease (µs): `lease`, or that of a daemon known here.
local MOST_DAEMONS = 10000
local function longest_lease(lease)
  for _, name in ipairs(call('ZRANGE', K.daemons, 0, MOST_DAEMONS - 1)) do
    lease = math.max(lease, tonumber(call('HGET', K.daemon .. name, 'lease') or 0))
  end
  return lease
end

-- Since when this server serves, at most (µs). A server that was started, and not promoted, serves since its start; of
-- any other the script can't tell, and takes now. (In a cluster the slot may have come from another node.)
local function serves_since(now, replication)
  local server = info('server')
  if not string.find(server, '_mode:standalone', 1, true) then return now end
  if not string.find(replication, 'master_replid2:0+%s') then return now end
  return now - ((tonumber(string.match(server, 'uptime_in_seconds:(%d+)')) or 0) - 1) * 1000000
end

local function begin_epoch(now, lease, id, before, replication)
  local fence = tonumber(call('GET', K.fence) or 0)
  epoch = { id = id, before = before, fence = fence, enrolled = call('HGET', K.epoch, 'enrolled') or NEVER }
  local awaited, has_doubt = call('ZCARD', K.daemons), call('EXISTS', K.recovering) == 1
  call('HSET', K.epoch, 'id', id, 'since', digits(now), 'before', before, 'fence', fence, 'found', epoch.enrolled,
    'awaited', awaited, 'doubt', (has_doubt or awaited == 0) and 1 or 0)
  raise_fence(now)
  local ends = serves_since(now, replication) + longest_lease(lease)
  if ends > now then
    call('SET', K.recovering, digits(ends))
  else
    call('DEL', K.recovering)
  end
end

-- Call it first: it enters the epoch that this script runs in.
local function enter_epoch(now, lease)
  note_first_epoch(now)
  local replication = info('replication')
  local id = leader(replication)
  local known = call('HMGET', K.epoch, 'id', 'before', 'fence', 'found')
  if known[1] ~= id then return begin_epoch(now, lease, id, known[1], replication) end
  epoch = { id = id, before = known[2], fence = tonumber(known[3]), enrolled = known[4] }
end

-- No number that a daemon has seen is given out again.
local function raise(shown)
  raise_fence(shown.fence)
  if shown.sequence > tonumber(call('HGET', K.count, 'sequence') or 0) then
    call('HSET', K.count, 'sequence', digits(shown.sequence))
  end
end

-- Whether all claims of a session are known here, so that it goes on: it is of this epoch, or of the one before, and no
-- claim of it is younger than what this server found of that.
local function goes_on(shown)
  return shown.epoch == epoch.id or (shown.epoch == epoch.before and shown.fence <= epoch.fence)
end

-- Whether a daemon may have lost its lease and a run to others, in writes that this server lost: these would begin with
-- the first task of the run, and write behind later ones that the daemon has done.
local function may_have_lost_a_run(daemon, now)
  if tonumber(call('ZSCORE', K.daemons, daemon) or 0) >= now or call('EXISTS', K.runs) == 0 then return false end
  for _, checkpoint in ipairs(call('HVALS', K.worker .. daemon)) do
    local claim = claim_of(checkpoint)
    if claim and claim.group ~= '' and call('HEXISTS', K.runs, claim.group) == 1 then return true end
  end
  return false
end

-- Whether a daemon is known here from before, and has not come yet.
local function is_awaited(daemon)
  return call('ZSCORE', K.daemons, daemon) and call('HGET', K.daemon .. daemon, 'epoch') ~= epoch.id
end

-- A daemon proves, by what it was told, that no daemon unknown to this server has registered; unless it slept over its
-- lease: then others may have gone on without it.
local function proves(daemon, shown, now)
  local lease = tonumber(call('ZSCORE', K.daemons, daemon) or 0)
  return goes_on({ epoch = shown.epoch, fence = 0 }) and shown.enrolled <= epoch.enrolled and lease >= now
end

-- An awaited daemon has come, or has gone.
local function arrive(is_proof)
  call('HINCRBY', K.epoch, 'awaited', -1)
  if not is_proof then call('HSET', K.epoch, 'doubt', 1) end
end

-- Ends the recovery where all awaited daemons have come, with proof, or a lease has passed. Returns µs until the
-- latter, or -1 where claims are free.
local function recover(now)
  local ends = call('GET', K.recovering)
  if not ends then return -1 end
  local state = call('HMGET', K.epoch, 'awaited', 'doubt')
  local is_whole = tonumber(state[1]) <= 0 and state[2] == '0'
  if now < tonumber(ends) and not is_whole then return tonumber(ends) - now end
  call('DEL', K.recovering)
  wake()
  return -1
end
