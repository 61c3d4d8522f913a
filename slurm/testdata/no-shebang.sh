echo hello
sleep 1
