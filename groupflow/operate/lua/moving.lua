-- Behind the facts and the ids in scripts that move tasks between partitions. No daemon runs meanwhile, unless
-- one dead letter moves: `move_out`, `move_in` and `move_turns` check, and change nothing if one does, or if one that
-- is gone still has a session: a fail-over may have brought its claims back.
--
-- A task is read in its old partition, written to the new one, and only then removed: a move that is cut
-- short is done again. `moved` notes a written task, under the partition that it came from, until it is
-- gone there.

-- The key of a place; if it is a pool's, of that pool.
local function key_in(where, pool) return TAG .. where .. (pool == '' and '' or ':' .. pool) end

local function living()
  local names = {}
  local function look(leases)
    local some = call('ZRANGE', leases, 0, 99, 'REV')
    for _, daemon in ipairs(some) do names[#names + 1] = daemon end
  end
  look(K.daemons)
  for _, pool in ipairs(pools()) do look(K.pool_pullers .. pool) end
  return #names > 0 and names
end

-- An id that is free here: the task's own, or one derived from it if another task has that.
local function free_id(id, scope) return is_known(id) and derive(id, scope) or id end

local HISTORY = { history_new = K.history_new, history_old = K.history_old }

-- The scope at the end of a line of the history.
local function scope_in(line) return string.match(line, '"(%x*)"%]$') end
