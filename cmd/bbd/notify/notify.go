// Package notify reports the daemon's state to the service manager: the protocol of
// systemd's sd_notify(3). Without a service manager every call does nothing.
// It must never depend on the daemon's work.
package notify

import (
	"context"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Ready reports that the daemon serves.
func Ready() error { return send(daemon.SdNotifyReady) }

// Stopping reports that the daemon is about to end and no restart is due.
func Stopping() error { return send(daemon.SdNotifyStopping) }

// Status shows a line of text in `systemctl status`.
func Status(text string) error { return send("STATUS=" + text) }

// Extend requests more time to start or stop, as a long recovery or drain needs. Call it again
// before the time is over.
func Extend(by time.Duration) error {
	return send(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", by.Microseconds()))
}

// Watch reports to the watchdog that the daemon is alive for as long as alive returns true,
// twice in each of the watchdog's intervals. It returns when the context ends, or
// at once where no watchdog waits.
func Watch(ctx context.Context, alive func() bool) error {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil || interval == 0 {
		return err
	}
	tick := time.NewTicker(interval / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if !alive() {
				continue
			}
			if err := send(daemon.SdNotifyWatchdog); err != nil {
				return err
			}
		}
	}
}

func send(state string) error {
	_, err := daemon.SdNotify(false, state)
	return err
}
