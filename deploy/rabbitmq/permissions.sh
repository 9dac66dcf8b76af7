#!/bin/sh
# Users of RabbitMQ that can do no more than groupflow does.
#
#   GROUPFLOW_PASSWORD=… PUBLISHER_PASSWORD=… ./permissions.sh [VHOST] [QUEUE]
#
# `groupflow` is the daemons' user: it declares the queue and consumes it, and can't publish.
# `groupflow-publisher` is for applications and `groupflow publish`: it publishes to the default
# exchange and can't read. The default exchange reaches every queue of its virtual host: give
# groupflow a virtual host of its own where other queues must be out of publishers' reach.
#
# RABBITMQCTL names another rabbitmqctl, e.g. "docker exec rabbitmq rabbitmqctl".
set -eu
vhost=${1:-/groupflow}
queue=${2:-groupflow.jobs}
: "${GROUPFLOW_PASSWORD:?set it to the password of the daemons}"
: "${PUBLISHER_PASSWORD:?set it to the password of the publishers}"
ctl=${RABBITMQCTL:-rabbitmqctl}

# In a regular expression a dot is any character.
pattern=$(printf %s "$queue" | sed 's/[][\\.*^$()+?{|}]/\\&/g')

$ctl add_vhost "$vhost" >/dev/null 2>&1 || $ctl list_vhosts --silent | grep -qxF -- "$vhost"

# make_user NAME PASSWORD CONFIGURE WRITE READ
make_user() {
    # The password goes in by stdin: arguments are everybody's to read.
    printf '%s\n' "$2" | $ctl add_user "$1" >/dev/null 2>&1 ||
        printf '%s\n' "$2" | $ctl change_password "$1"
    $ctl set_permissions --vhost "$vhost" "$1" "$3" "$4" "$5"
}

#                                             configure       write              read
make_user groupflow "$GROUPFLOW_PASSWORD" "^$pattern\$" "^\$" "^$pattern\$"
make_user groupflow-publisher "$PUBLISHER_PASSWORD" "^\$" "^amq\\.default\$" "^\$"
