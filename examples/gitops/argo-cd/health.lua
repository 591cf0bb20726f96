-- Health of an OptimisedModel for Argo CD, from the condition Ready of the current generation. What is not listed here needs
-- a user to change something, and is Degraded. docs/gitops.md says how to install it.
local waits_for_time = {
  Resolving = true, ResolveRetrying = true, AskingServerImage = true,
  WaitingForSource = true, WaitingForQueue = true, WaitingForEngine = true,
  BuildPending = true, Building = true, BuildRetrying = true, TargetChanged = true,
  Unschedulable = true, Evicted = true, NodeLost = true, EngineLost = true,
  Progressing = true, Analysing = true, WaitingForSamples = true, WaitingForClasses = true, Draining = true,
  MetricsUnreadable = true, ReplicasNotReady = true, BatchRunning = true,
}
local waits_for_somebody = {
  Suspended = true, WaitingForPromotion = true, WaitingForReplicas = true, Pinned = true, NoReplica = true,
  ObjectiveUnknown = true,
}

local status = obj.status or {}
if status.observedGeneration ~= obj.metadata.generation then
  return { status = "Progressing", message = "The operator has not seen this generation yet." }
end

for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Ready" then
    local message = condition.reason .. ": " .. condition.message
    if obj.spec.suspend == true then
      return { status = "Suspended", message = "spec.suspend is true. " .. message }
    end
    if condition.status == "True" then
      return { status = "Healthy", message = message }
    end
    if waits_for_somebody[condition.reason] then
      return { status = "Suspended", message = message }
    end
    if condition.status == "Unknown" or waits_for_time[condition.reason] then
      return { status = "Progressing", message = message }
    end
    return { status = "Degraded", message = message }
  end
end

return { status = "Progressing", message = "The operator has not judged this object yet." }
