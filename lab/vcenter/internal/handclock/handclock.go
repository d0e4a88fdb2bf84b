// Package handclock is a clock for tests: it stands still until the test moves it.
package handclock

import (
	"sync"
	"time"
)

// Clock is safe for use by the code under test and the test at once.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// At makes a clock that shows this time.
func At(now time.Time) *Clock { return &Clock{now: now} }

// Now is the time it shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves it forward.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
