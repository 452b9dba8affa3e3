require "carbon_fiber"
require "carbon_fiber/version"
raise "carbon_fiber runs without its native part" unless CarbonFiber::Native.respond_to?(:backend) && CarbonFiber::Native.backend == "libxev"

CarbonFiber::Scheduler.new
