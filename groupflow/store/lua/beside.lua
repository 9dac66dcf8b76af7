-- Behind the prelude in the scripts by which a slot goes on in its group: whether anything may go before that.

local function is_beside_others()
  return is_limiting()
    or call('EXISTS', K.ready, K.suspect_groups, K.paused_all, K.recovering, K.parked, K.paused) > 0
end
