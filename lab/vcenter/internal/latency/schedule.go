package latency

import (
	"math/rand"
	"sync"
	"sync/atomic"
	"time"
)

// Seed is the one of the dice unless another is set, so that a run can be repeated.
const Seed = 1

// Schedule says when the work of one vCenter is done. It is safe for use by several goroutines.
type Schedule struct {
	profile atomic.Pointer[Profile]

	mu         sync.Mutex
	seed       int64
	dice       *rand.Rand
	nextCreate time.Time            // before it no other create begins
	busy       map[string]time.Time // until when a VM has work
}

// Work is a part of a task.
type Work struct {
	Operation Operation
	VM        string  // that has this work alone; empty when it is about none
	GiB       float64 // of data to copy
}

// New makes a schedule.
func New(profile *Profile) *Schedule {
	s := new(Schedule)
	s.Set(profile, Seed)
	return s
}

// Set changes the profile, from the next call on.
func (s *Schedule) Set(profile *Profile, seed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seed, s.dice = seed, rand.New(rand.NewSource(seed))
	s.nextCreate, s.busy = time.Time{}, map[string]time.Time{}
	s.profile.Store(profile)
}

// Forget empties the queues, as a restart does. What waits in them is told by others.
func (s *Schedule) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextCreate, s.busy = time.Time{}, map[string]time.Time{}
}

// Profile is the present one.
func (s *Schedule) Profile() *Profile { return s.profile.Load() }

// Seed is that of the present dice.
func (s *Schedule) Seed() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seed
}

// On tells whether anything takes time. It costs next to nothing.
func (s *Schedule) On() bool { return s.Profile().times != nil }

// Call is how long a call takes.
func (s *Schedule) Call(operation Operation) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sample(operation)
}

// Task is how long a task takes that starts now, with what it has to wait for. Its parts are done side by side unless
// they are about one VM. So many creates begin within a second, one after the other; 0 is no ceiling.
func (s *Schedule) Task(now time.Time, parts []Work, createsPerSecond int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	for vm, until := range s.busy {
		if until.Before(now) {
			delete(s.busy, vm)
		}
	}
	done := now
	for _, part := range parts {
		begin := now
		if part.Creates() && createsPerSecond > 0 {
			if s.nextCreate.After(begin) {
				begin = s.nextCreate
			}
			s.nextCreate = begin.Add(time.Second / time.Duration(createsPerSecond))
		}
		if until := s.busy[part.VM]; part.VM != "" && until.After(begin) {
			begin = until
		}
		end := begin.Add(s.sample(part.Operation))
		if part.GiB > 0 {
			end = end.Add(time.Duration(part.GiB * float64(perGiB)))
		}
		if part.VM != "" {
			s.busy[part.VM] = end
		}
		if end.After(done) {
			done = end
		}
	}
	return done.Sub(now)
}

// Busy reports whether a VM has work now. Its parts follow each other without a gap.
func (s *Schedule) Busy(vm string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy[vm].After(now)
}

// Creates tells whether the ceiling of creates counts it.
func (w Work) Creates() bool {
	return w.Operation == Create || w.Operation == Restore || w.Operation == CreateShare
}

func (s *Schedule) sample(operation Operation) time.Duration {
	return s.Profile().times[operation].Quantile(s.dice.Float64())
}
