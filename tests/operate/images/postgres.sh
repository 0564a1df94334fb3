# A PostgreSQL with the user, password and database that its environment names.
set -eu
export PATH="$(echo /usr/lib/postgresql/*/bin):$PATH"
data=/var/lib/postgresql/data
if [ ! -e "$data/PG_VERSION" ]; then
    secret=$(mktemp)
    printf '%s' "$POSTGRES_PASSWORD" > "$secret"
    initdb --pgdata="$data" --username="$POSTGRES_USER" --pwfile="$secret" --auth=scram-sha-256 --encoding=UTF8
    rm "$secret"
    echo "host all all all scram-sha-256" >> "$data/pg_hba.conf"
    echo "CREATE DATABASE \"$POSTGRES_DB\";" | postgres --single -D "$data" postgres
fi
exec postgres -D "$data" -c listen_addresses='*' -c unix_socket_directories=/tmp,/var/run/postgresql
