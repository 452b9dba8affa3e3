# frozen_string_literal: true

require "reactor"

# The order of the two depends on how long the machine takes for one turn of the loop. bin/check stalls must find it: exit status 3.
log = []
Fiber.set_scheduler(Reactor::Scheduler.new)
Fiber.schedule { sleep 0.002; log << :sleeper }
Fiber.schedule { sleep 0; log << :other }
Fiber.scheduler.run
exit 3 unless log == %i[other sleeper]
