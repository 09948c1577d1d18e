package main

import "syscall"

// sysProcAttr lets the kernel kill a worker process when the thread that started it dies, also one that is stopped,
// and keeps the terminal's Ctrl-C away from it.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
