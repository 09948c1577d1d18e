//go:build !unix

package redisproc

import (
	"errors"
	"os"
	"syscall"
)

// Redis does not run here; what is below lets the redlock command build, whose other parts do.
const (
	stopSignal     = syscall.Signal(0)
	continueSignal = syscall.Signal(0)
)

func sysProcAttr() *syscall.SysProcAttr { return nil }

func signal(*os.Process, syscall.Signal) error {
	return errors.New("no such signal on this system")
}

func awaitStopped(*life) error { return nil }
