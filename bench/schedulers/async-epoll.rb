require "async"
Async::Scheduler.new(selector: IO::Event::Selector::EPoll.new(Fiber.current))
