package batch

import (
	"context"
	"maps"
	"slices"

	"forebay/flusher/plan"
	"forebay/internal/bb"
)

// report notes the losses of a buffer's destruction, before it is destroyed.
func (k *Controller) report(ctx context.Context, l *bb.Lifetime, b Buffer, discard bool) error {
	var lines []bb.LossLine
	var sum bb.LossSum
	spec := b.Spec()
	err := b.Unsaved(ctx, func(e *bb.Entry, path string) error {
		reason, lost := lossOf(l, &spec, e, path, discard)
		switch {
		case !lost:
			return nil
		case reason == "":
			return bb.E(bb.Busy, "drain", address(spec.Name, path), "it has been written since the buffer was drained")
		}
		sum.Total++
		sum.Bytes += e.Size
		if len(lines) < maxLosses {
			lines = append(lines, bb.LossLine{Path: address(spec.Name, path), Bytes: e.Size, Reason: reason})
		}
		return nil
	})
	var steps []bb.SupersededStep
	if err == nil {
		steps, err = b.Superseded(ctx)
	}
	lost := sum != (bb.LossSum{}) || mentions(&l.Losses, spec.Name)
	if err != nil || !lost && len(steps) == 0 && !slices.ContainsFunc(l.Superseded, areOf(spec.Name)) {
		return err
	}
	now, ok := k.change(ctx, l, func(now *bb.Lifetime) {
		now.Losses = reported(now.Losses, spec.Name, lines, sum)
		now.Superseded = superseded(now.Superseded, spec.Name, steps)
	})
	if !ok {
		return errNotYet
	}
	now.Nodes = l.Nodes
	*l = now
	return nil
}

// lossOf reports whether a file that the store does not have as it is counts as lost when the buffer is
// destroyed, and why. No reason: nothing explains that it is not saved, and the buffer has to stay. It
// is a function of its arguments alone.
//
//	file                                        lost   reason
//	lost already                                yes    of its entry
//	scratch, not to be copied out any more      no
//	under a name that a pattern keeps back      yes    the pattern
//	of a job that did not run                   yes    that
//	of a buffer that is discarded               yes    that
//	any other                                   yes    none
func lossOf(l *bb.Lifetime, spec *bb.Buffer, e *bb.Entry, path string, discard bool) (reason string, lost bool) {
	if e.State() == bb.StateLost {
		return e.LostReason(), true
	}
	if spec.Backing == "" && !notCopiedOut(l, spec.Name, path) {
		return "", false
	}
	pattern, excluded := plan.Excluded(spec.NoFlush, path)
	switch {
	case excluded:
		return "it was not flushed under this name, which the pattern " + pattern + " keeps back", true
	case l.SchedulerManaged && !l.Ran:
		return "it was not flushed, as the job did not run", true
	case discard:
		return "its buffer was destroyed before it was flushed", true
	}
	return "", true
}

// reported returns a loss report in which lines and sum are all there is about a buffer. An attempt
// that was cut off before the buffer was destroyed may have reported it already.
func reported(report bb.LossReport, buffer string, lines []bb.LossLine, sum bb.LossSum) bb.LossReport {
	earlier, split := report.Buffers[buffer]
	files := make([]bb.LossLine, 0, min(len(report.Files)+len(lines), maxLosses))
	for _, x := range report.Files {
		if !isOf(&x, buffer) {
			files = append(files, x)
		} else if !split { // an older release noted it
			earlier.Total++
			earlier.Bytes += x.Bytes
		}
	}
	sums := map[string]bb.LossSum{}
	maps.Copy(sums, report.Buffers)
	delete(sums, buffer)
	if sum != (bb.LossSum{}) {
		sums[buffer] = sum
	}
	files = append(files, lines...)
	return bb.LossReport{
		Files: files[:min(len(files), maxLosses)], Buffers: sums,
		Total: report.Total - earlier.Total + sum.Total, Bytes: report.Bytes - earlier.Bytes + sum.Bytes,
	}
}

// A record of a batch job names at most so many superseded steps, in so many bytes. It has to fit its key.
const (
	maxSteps     = 100
	maxStepBytes = 16 << 10
)

// areOf returns whether superseded steps are a buffer's.
func areOf(buffer string) func(bb.SupersededSteps) bool {
	return func(s bb.SupersededSteps) bool { return s.Buffer == buffer }
}

// superseded returns the superseded steps of all buffers, in which steps are all there are of one. An
// attempt that was cut off may have reported it already.
func superseded(all []bb.SupersededSteps, buffer string, steps []bb.SupersededStep) []bb.SupersededSteps {
	all = slices.DeleteFunc(slices.Clone(all), areOf(buffer))
	if len(steps) == 0 {
		return all
	}
	left, room := maxSteps, maxStepBytes
	for _, other := range all {
		left -= len(other.Steps)
		for _, s := range other.Steps {
			room -= len(s.Step) + len(s.By)
		}
	}
	mine := bb.SupersededSteps{Buffer: buffer, Total: int64(len(steps))}
	for _, s := range steps {
		mine.Files, mine.Bytes = mine.Files+s.Files, mine.Bytes+s.Bytes
		if room -= len(s.Step) + len(s.By); room >= 0 && len(mine.Steps) < left {
			mine.Steps = append(mine.Steps, s)
		}
	}
	return append(all, mine)
}

// mentions reports whether a loss report has anything about a buffer.
func mentions(report *bb.LossReport, buffer string) bool {
	_, ok := report.Buffers[buffer]
	return ok || slices.ContainsFunc(report.Files, func(x bb.LossLine) bool { return isOf(&x, buffer) })
}

// isOf reports whether a line of a loss report is about a file of a buffer.
func isOf(x *bb.LossLine, buffer string) bool {
	at, err := bb.ParseAddress(x.Path)
	return err == nil && at.Buffer == buffer
}

// notCopiedOut reports whether a job that was abandoned had still to copy a file out.
func notCopiedOut(l *bb.Lifetime, buffer, path string) bool {
	return l.Hurry && (l.Ran || !l.SchedulerManaged) && slices.ContainsFunc(l.Out, func(s bb.LifetimeStage) bool {
		return s.Buffer == buffer && bb.Within(path, s.Path) && !s.Done && (l.Succeeded || !s.OnSuccess)
	})
}
