package latency

import (
	"math"
	"slices"
	"testing"
	"time"
)

func near(got time.Duration, want, tolerance float64) bool {
	return math.Abs(got.Seconds()-want) <= tolerance*want
}

func TestQuantilesAreThoseOfTheNumbers(t *testing.T) {
	for _, profile := range Profiles[1:] {
		for operation, of := range profile.times {
			if got := of.Quantile(0.5); !near(got, of.Median, 1e-6) {
				t.Errorf("%s %s: the median is %s, not %g s", profile.Name, operation, got, of.Median)
			}
			if got := of.Quantile(0.95); !near(got, of.P95, 1e-6) {
				t.Errorf("%s %s: the 95th percentile is %s, not %g s", profile.Name, operation, got, of.P95)
			}
			last := time.Duration(0)
			for _, share := range []float64{0, 0.01, 0.2, 0.5, 0.9, 0.99, 1} {
				got := of.Quantile(share)
				if got < last || got <= 0 || got > 10*time.Minute {
					t.Errorf("%s %s: the quantile of %g is %s", profile.Name, operation, share, got)
				}
				last = got
			}
		}
	}
	if got := (Time{}).Quantile(0.7); got != 0 {
		t.Errorf("no time takes %s", got)
	}
}

func TestSamplesFollowTheQuantiles(t *testing.T) {
	profile, err := Lookup("loaded")
	if err != nil {
		t.Fatal(err)
	}
	s := New(profile)
	const draws = 20_000
	times := make([]time.Duration, draws)
	for i := range times {
		times[i] = s.Call(Attach)
	}
	slices.Sort(times)
	if median, p95 := times[draws/2], times[draws*95/100]; !near(median, 3.6, 0.02) || !near(p95, 6.8, 0.02) {
		t.Errorf("the median of %d is %s, the 95th percentile %s", draws, median, p95)
	}
}

func TestASeedRepeatsARun(t *testing.T) {
	draw := func(seed int64) []time.Duration {
		s := New(None)
		s.Set(Profiles[2], seed)
		return []time.Duration{s.Call(Read), s.Call(Query), s.Task(time.Unix(0, 0), []Work{{Operation: Create}}, 4)}
	}
	if !slices.Equal(draw(7), draw(7)) {
		t.Error("the same seed gives other times")
	}
	if slices.Equal(draw(7), draw(8)) {
		t.Error("another seed gives the same times")
	}
}

// exact takes always the same time.
func exact(seconds float64) *Schedule {
	times := map[Operation]Time{}
	for operation := range measured {
		times[operation] = Time{seconds, seconds}
	}
	return New(NewProfile("exact", times))
}

func TestCreatesBeginOneAfterTheOther(t *testing.T) {
	s, now := exact(2), time.Unix(1000, 0)
	for i, want := range []time.Duration{2000, 2250, 2500, 2750, 3000} {
		if got := s.Task(now, []Work{{Operation: Create}}, 4); got != want*time.Millisecond {
			t.Errorf("create %d takes %s, not %d ms", i, got, want)
		}
	}
	if got := s.Task(now, []Work{{Operation: Delete}}, 4); got != 2*time.Second {
		t.Errorf("a delete takes %s", got)
	}
	if got := s.Task(now.Add(time.Hour), []Work{{Operation: Create}}, 4); got != 2*time.Second {
		t.Errorf("a create on an idle vCenter takes %s", got)
	}
	for range 10 {
		if got := s.Task(now, []Work{{Operation: Restore}}, 0); got != 2*time.Second {
			t.Errorf("without a ceiling a create takes %s", got)
		}
	}
}

func TestAttachAndDetachOfAVMComeOneAfterTheOther(t *testing.T) {
	s, now := exact(3), time.Unix(1000, 0)
	one, other := Work{Operation: Attach, VM: "vm-1"}, Work{Operation: Attach, VM: "vm-2"}
	for i, want := range []time.Duration{3, 6} {
		if got := s.Task(now, []Work{one}, 4); got != want*time.Second {
			t.Errorf("attach %d takes %s, not %d s", i, got, want)
		}
	}
	if got := s.Task(now, []Work{other}, 4); got != 3*time.Second {
		t.Errorf("an attach to another VM takes %s", got)
	}
	if got := s.Task(now.Add(time.Second), []Work{{Operation: Detach, VM: "vm-1"}}, 4); got != 8*time.Second {
		t.Errorf("a detach behind two takes %s", got)
	}
	if got := s.Task(now, []Work{other, {Operation: Attach, VM: "vm-3"}}, 4); got != 6*time.Second {
		t.Errorf("a task for two VMs takes %s", got)
	}
	s.Forget()
	if got := s.Task(now, []Work{one}, 4); got != 3*time.Second {
		t.Errorf("after a restart an attach takes %s", got)
	}
}

func TestARelocationTakesTimeForItsData(t *testing.T) {
	s := exact(20)
	if got := s.Task(time.Unix(0, 0), []Work{{Operation: Relocate, GiB: 1.5}}, 4); got != 35*time.Second {
		t.Errorf("it takes %s", got)
	}
}

func TestNothingTakesTimeByDefault(t *testing.T) {
	for _, name := range []string{"", "none"} {
		profile, err := Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		s := New(profile)
		if s.On() || s.Call(LoginSOAP) != 0 || s.Task(time.Unix(0, 0), []Work{{Operation: Create}}, 0) != 0 {
			t.Errorf("profile %q takes time", name)
		}
	}
	if _, err := Lookup("slow"); err == nil {
		t.Error("an unknown profile is found")
	}
}

// With a quick lab the ceiling alone explains what was measured there: clients that create at once wait for each other.
func TestTheFastLabIsAsFastAsMeasured(t *testing.T) {
	profile, err := Lookup("fast-lab")
	if err != nil {
		t.Fatal(err)
	}
	for clients, want := range map[int]float64{1: 0.42, 8: 2.2, 16: 4.0, 64: 15.7} {
		s, now := New(profile), time.Unix(1000, 0)
		free := make([]time.Time, clients) // when each client begins the next one
		for i := range free {
			free[i] = now
		}
		var all time.Duration
		const rounds = 40
		for range rounds {
			for i := range free {
				took := s.Task(free[i], []Work{{Operation: Create}}, 4)
				all += took
				free[i] = free[i].Add(took)
			}
		}
		if mean := all / time.Duration(rounds*clients); !near(mean, want, 0.15) {
			t.Errorf("%d clients: a create takes %s, measured %g s", clients, mean, want)
		}
	}
}
