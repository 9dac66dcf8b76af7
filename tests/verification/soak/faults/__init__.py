"""What goes wrong, on purpose: one small class a fault, seeded, each undoing what it did.

A fault *holds* what no other may touch meanwhile: the daemon, server or wire that it breaks. All
else may break at the same time. (Redis killed while its disk is full would prove nothing: it loses
what it had answered, which is no fault of ours.)
"""
