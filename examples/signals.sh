# The other scripts read this file. SIGTERM and Ctrl-C reach a shell, which must
# pass them on and wait until the run has saved its checkpoint.

# Runs a command that may take long, and returns its status.
supervise() {
  "$@" &
  child=$!
  trap 'kill -TERM "$child"' INT TERM
  status=0
  wait "$child" || status=$?
  while kill -0 "$child" 2>/dev/null; do # a signal has ended only the wait
    status=0
    wait "$child" || status=$?
  done
  trap - INT TERM
  return "$status"
}
