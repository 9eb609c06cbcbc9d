package report

import (
	"testing"

	"forebay/internal/measure"
)

func TestRatioAndGoal(t *testing.T) {
	speed := func(v float64) *measure.Figure { return measure.Of("", measure.BytesPerSecond, []float64{v}) }
	wait := func(v float64) *measure.Figure { return measure.Of("", measure.Seconds, []float64{v}) }
	yes, no := true, false
	for name, c := range map[string]struct {
		goal          Goal
		result, limit *measure.Figure
		ratio         float64 // 0: none
		reached       *bool
	}{
		"rate reached":          {RatioGoal("0.9", 0.9), speed(9), speed(10), 0.9, &yes},
		"rate not reached":      {RatioGoal("0.9", 0.9), speed(8), speed(10), 0.8, &no},
		"time reached":          {RatioGoal("2", 2), wait(3), wait(2), 1.5, &yes},
		"time not reached":      {RatioGoal("2", 2), wait(5), wait(2), 2.5, &no},
		"absolute rate":         {Goal{Bound: 100, Absolute: true}, speed(120), nil, 0, &yes},
		"absolute time":         {Goal{Bound: 1, Absolute: true}, wait(2), wait(0.5), 4, &no},
		"published":             {Goal{Text: "published"}, wait(2), wait(1), 2, nil},
		"no limit":              {RatioGoal("0.9", 0.9), speed(9), nil, 0, nil},
		"no result":             {RatioGoal("0.9", 0.9), nil, speed(9), 0, nil},
		"units differ":          {RatioGoal("0.9", 0.9), speed(9), wait(9), 0, nil},
		"limit of nothing":      {RatioGoal("0.9", 0.9), speed(9), speed(0), 0, nil},
		"no limit and no bound": {Goal{Text: "no byte moved"}, wait(1), nil, 0, nil},
	} {
		got := measure.Ratio(c.result, c.limit)
		if (got != nil) != (c.ratio != 0) || got != nil && *got != c.ratio {
			t.Errorf("%s: ratio %v, want %v", name, got, c.ratio)
		}
		reached := c.goal.Met(c.result, got)
		if (reached == nil) != (c.reached == nil) || reached != nil && *reached != *c.reached {
			t.Errorf("%s: reached %v, want %v", name, verdict(reached), verdict(c.reached))
		}
	}
}
