#!lua flags=no-writes
-- holdings: what a puller holds, told to any caller; claims nothing, and pushes no lease back.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 worker, `pool/<pool>/<worker>` · then the slots asked about, all where none is named
-- returns  { Redis's clock (µs), when its lease runs out (µs), 0 where it has no session, a flat list of seven
--          a claim, as for `exchange` · since when (µs) in place of the rest of a run; where all are asked about, how
--          far each has got (see `progress.lua`), '' where nothing was said }
local daemon = ARGV[1]
local wanted, found = {}, {}
for i = 2, #ARGV do wanted[ARGV[i]] = true end
local checkpoints = call('HGETALL', K.worker .. daemon)
for i = 1, #checkpoints, 2 do
  local claim = (#ARGV == 1 or wanted[checkpoints[i]]) and claim_of(checkpoints[i + 1])
  if claim then
    add_row(checkpoints[i], claim.fence, claim.entry, claim.group, envelope_of(claim.entry) or '')
    rows[last] = claim.since
    claim.daemon, claim.slot = daemon, checkpoints[i]
    if #ARGV == 1 then found[#found + 1] = progress_of(claim) or '' end
  end
end
return { clock(), tonumber(call('ZSCORE', leases_of(daemon), daemon) or 0), rows, unpack(found) }
