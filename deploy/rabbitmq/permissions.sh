#!/bin/sh
# Users of RabbitMQ that can do no more than groupflow does.
#
#   GROUPFLOW_PASSWORD=… PUBLISHER_PASSWORD=… ./permissions.sh [VHOST] [QUEUE] [EVENTS]
#
# `groupflow` is the daemons' user: it declares the queue and consumes it. It declares the exchange EVENTS
# (events.exchange; none where it isn't given) and publishes to it, and replies by the default exchange.
# It has QUEUE.dead to itself, the stream that dead letters' bodies go to, with an exchange of that name;
# and where there are partitions QUEUE.0 and on, QUEUE.ring and QUEUE.lock, which it binds to each other.
# `groupflow-publisher` is for applications and `groupflow publish`: it publishes to the default exchange,
# and to QUEUE where there are partitions, and reads nothing but queues for replies, which RabbitMQ names.
# The default exchange reaches every queue of its virtual host: give groupflow a virtual host of its own
# where other queues must be out of reach. Run again, it sets the passwords and rights anew.
#
# RABBITMQCTL names another rabbitmqctl, e.g. "docker exec -i rabbitmq rabbitmqctl": a command that
# hands on its input, without options of rabbitmqctl itself, since with any of them RabbitMQ 4 reads
# no password. Another node is named by RABBITMQ_NODENAME. Each call may take RABBITMQCTL_TIMEOUT
# seconds (60).
set -eu
vhost=${1:-/groupflow}
queue=${2:-groupflow.jobs}
events=${3:-}
: "${GROUPFLOW_PASSWORD:?set it to the password of the daemons}"
: "${PUBLISHER_PASSWORD:?set it to the password of the publishers}"
# From here on in no environment: rabbitmqctl may run as another user.
daemons_password=$GROUPFLOW_PASSWORD publishers_password=$PUBLISHER_PASSWORD
unset GROUPFLOW_PASSWORD PUBLISHER_PASSWORD
ctl=${RABBITMQCTL:-rabbitmqctl}
limit=${RABBITMQCTL_TIMEOUT:-60}

# In a regular expression a dot is any character.
quote() { printf %s "$1" | sed 's/[][\\.*^$()+?{|}]/\\&/g'; }
pattern=$(quote "$queue")
or_events=${events:+"|$(quote "$events")"}

# call ARGUMENT…: rabbitmqctl, with our input, for as long as it may take.
call() {
    code=0
    # shellcheck disable=SC2086 # it may be several words
    timeout "$limit" $ctl "$@" || code=$?
    [ "$code" != 124 ] ||
        printf '%s\n' "permissions.sh: '$ctl $1' gave no answer within $limit s. Is the node up? If" \
            "RABBITMQCTL has options, give the node by RABBITMQ_NODENAME instead." >&2
    return "$code"
}

# has LIST NAME: whether it is in the first column of a list that rabbitmqctl told.
has() { printf '%s\n' "$1" | cut -f 1 | grep -qxF -e "$2"; }

# make_user NAME PASSWORD CONFIGURE WRITE READ
make_user() {
    verb=add_user
    ! has "$users" "$1" || verb=change_password
    # The password goes in by stdin: arguments are everybody's to read.
    printf '%s\n' "$2" | call "$verb" "$1"
    call set_permissions --vhost "$vhost" "$1" "$3" "$4" "$5" </dev/null
}

vhosts=$(call list_vhosts --silent </dev/null)
users=$(call list_users --silent </dev/null)
has "$vhosts" "$vhost" || call add_vhost "$vhost" </dev/null
ours="^$pattern(\\.(dead|ring|lock|[0-9]+))?\$"
declared="^($pattern(\\.(dead|ring|lock|[0-9]+))?$or_events)\$"
written="^($pattern\\.(dead|ring|[0-9]+)|amq\\.default$or_events)\$"
replies='^amq\.gen-'
#                                               configure    write       read
make_user groupflow "$daemons_password" "$declared" "$written" "$ours"
make_user groupflow-publisher "$publishers_password" "$replies" "^(amq\\.default|$pattern)\$" "$replies"
