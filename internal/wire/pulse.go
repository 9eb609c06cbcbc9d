package wire

// CapabilityPulse is named by daemons in Hello and in Welcome: where both do, who
// welcomes sends Pulse.
const CapabilityPulse = "pulse"
