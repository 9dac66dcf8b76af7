#!lua flags=allow-oom
-- retry: the attempt failed, and there will be another one. The task waits for its time: in a group either as the head,
-- which holds those behind it, or aside, which lets them go on. Where its rule debounces, and a newer task of its group
-- and type waits, there will be none: that one replaces it.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 session · 3 slot · 4 fence · 5 entry · 6 group · 7 and on: what `try_again` takes
--          (`failing.lua`)
-- returns  { state, { 1 (accepted, also a repeat), 3 (accepted, and superseded), 5 (accepted, and cancelled), 6 (the same,
--          since a newer task came) or 0 (the fence is stale) } }
return settle(function(entry, group, now)
  return cancel_instead(entry, group, now) or (try_again(entry, group, 7, now) and 3)
end)
