#!lua flags=allow-oom
-- leave: close a daemon's session at its orderly end. Claims that it still holds are handed over
-- at once, as after a crash: whatever they ran, nobody settled it.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 daemon · 2 session, as it shows it
-- returns  rows of { id, group, fence } that were handed over
if session_state(ARGV[1], ARGV[2]) ~= 'OK' then return {} end
return hand_over(ARGV[1], clock())
