#!/bin/sh
# Writes the secrets of an installation as files, for docker compose and Kubernetes:  deploy/make_secrets.sh [FOLDER, by default secrets]
# SECRET_KEY, POSTGRES_PASSWORD and REDIS_PASSWORD are taken from the environment where they are set, from an earlier installation for example.
# The folder is its owner's alone; the files in it are readable by every user, because each container has one of its own.
set -eu
folder=${1:-secrets}
if [ -e "$folder/secret-key" ]; then
  echo "$folder/secret-key is there already: nothing was written. A lab with another key cannot read its second factors and webhooks." >&2
  exit 2
fi
make_word() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }
database=${POSTGRES_PASSWORD:-$(make_word)} redis=${REDIS_PASSWORD:-$(make_word)}
case "$database$redis" in *[!A-Za-z0-9._~-]*) echo "POSTGRES_PASSWORD and REDIS_PASSWORD stand in addresses: letters, digits and . _ ~ - only" >&2; exit 2 ;; esac
mkdir -p "$folder"
chmod 700 "$folder"
umask 077
write() { printf '%s' "$2" > "$folder/$1.new" && chmod 444 "$folder/$1.new" && mv "$folder/$1.new" "$folder/$1"; }
write postgres-password "$database"
write redis-password "$redis"
write redis.conf "requirepass $redis"
write database-url "postgres://lab:$database@postgres:5432/lab"
write redis-url "redis://:$redis@redis:6379/0"
write secret-key "${SECRET_KEY:-$(make_word)}"
echo "$folder: $(ls "$folder" | tr '\n' ' ')"
