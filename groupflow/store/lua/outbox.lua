-- Behind the prelude, in every script: the outbox, what RabbitMQ is still to be told. The script that ends a task writes
-- there, so no end goes untold; the relay publishes it (`relay.lua`). `TELLS` names the ends that the configuration
-- wants told, with a space around each.
--
-- An entry is 16 digits of number and a JSON object. Numbers rise, and are Redis's clock (µs) or just above it. `count`
-- has the last number (`told`) and the bytes of all entries (`outbox_bytes`). From `OUTBOX_MOST` bytes on there is
-- `outbox_full`, and nothing is claimed: what runs still ends, and is told.

-- Writes entries (JSON) in their order; the list gets their numbers.
local function put_out(entries, now)
  local last, bytes, outbox = math.max(now - 1, tonumber(call('HGET', K.count, 'told') or nil) or 0), 0, K.outbox
  for n = 1, #entries do
    entries[n] = digits(last + n) .. entries[n]
    bytes = bytes + #entries[n]
  end
  call('HSET', K.count, 'told', digits(last + #entries))
  local length = call('LLEN', outbox)
  for n = 1, #entries, 500 do call('RPUSH', outbox, unpack(entries, n, math.min(n + 499, #entries))) end
  local all = call('HINCRBY', K.count, 'outbox_bytes', bytes)
  if all >= OUTBOX_MOST then call('SET', K.outbox_full, all) end
  if length == 0 then tell('outbox') end
end

-- Keeps results of tasks that are done: a flat list of id · result. They are kept as the history is, in two segments; and
-- in fewer bytes: from half of `RESULTS_MOST` on the older ones go at once.
local function keep_results(results)
  local bytes = 0
  for n = 2, #results, 2 do bytes = bytes + #results[n] + #results[n - 1] end
  for n = 1, #results, 500 do call('HSET', K.results_new, unpack(results, n, math.min(n + 499, #results))) end
  if call('HINCRBY', K.count, 'results_bytes', bytes) * 2 < RESULTS_MOST then return end
  call('UNLINK', K.results_old)
  call('RENAME', K.results_new, K.results_old)
  call('HDEL', K.count, 'results_bytes')
end

-- Keeps the ids of tasks of groups that have ended, in their order: the last 10,000 at least, in two lists.
local function keep_lately(ids)
  local length = 0
  for n = 1, #ids, 500 do length = call('RPUSH', K.lately_new, unpack(ids, n, math.min(n + 499, #ids))) end
  if length < 10000 then return end
  call('UNLINK', K.lately_old)
  call('RENAME', K.lately_new, K.lately_old)
end
