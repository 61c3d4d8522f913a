package main

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// timerSlack is how much later than asked the kernel may end a sleep of the gateway's threads. One of Go's runtime
// sleeps for 20 us at a time while there is work. With the kernel's usual slack of 50 us that is another switch of
// threads for two of three requests, on cores that are busy.
const timerSlack = 200 * time.Microsecond

// slackVariable tells the program that it has begun again.
const slackVariable = "MUSTER_GATEWAY_SLACK"

// setTimerSlack gives all threads the slack. A thread can set only its own, which its children and its process have
// after execve(2), and Go has started threads before main: so the program begins again, in the same process. It goes on
// as it is if it has that much already, such as by systemd's TimerSlackNSec=, and where the kernel does not let it.
func setTimerSlack() {
	if os.Getenv(slackVariable) != "" {
		_ = os.Unsetenv(slackVariable) // fails only for names that are none
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || now >= int(timerSlack) || unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0) != nil {
		return
	}
	if program, err := os.Executable(); err == nil {
		_ = syscall.Exec(program, os.Args, append(os.Environ(), slackVariable+"=set")) // returns only if it fails
	}
}
