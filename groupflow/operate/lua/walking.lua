-- Behind the session rules in the scripts that look at many groups: who runs, and who is held.

-- The live claims of grouped tasks, `most` of them at most, over every worker of every daemon.
local function group_claims(most)
  local found = {}
  for _, daemon in ipairs(call('ZRANGE', K.daemons, 0, 999)) do
    local checkpoints = call('HGETALL', K.worker .. daemon)
    for i = 1, #checkpoints, 2 do
      local claim = claim_of(checkpoints[i + 1])
      if claim and claim.group ~= '' and #found < most then
        claim.daemon, claim.worker, claim.checkpoint = daemon, checkpoints[i], checkpoints[i + 1]
        found[#found + 1] = claim
      end
    end
  end
  return found
end

-- The groups in a hash that people or deaths filled: nearly always few. Past that, a part of them.
local function groups_in(key, most)
  local found = {}
  local page = call('HSCAN', key, 0, 'COUNT', most)[2]
  for i = 1, math.min(#page, 2 * most), 2 do found[#found + 1] = page[i] end
  return found
end
